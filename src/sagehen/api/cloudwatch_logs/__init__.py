"""CloudWatch Logs, read only: what containers print."""
