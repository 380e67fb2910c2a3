"""CloudWatch's metrics, read and written; alarms are not supported."""
