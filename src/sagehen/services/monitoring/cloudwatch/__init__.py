"""CloudWatch's metrics, read and written."""
