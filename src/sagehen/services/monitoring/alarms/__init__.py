"""CloudWatch's alarms: definitions, evaluation, history and actions."""
