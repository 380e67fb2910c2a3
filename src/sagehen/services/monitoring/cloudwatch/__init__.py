"""CloudWatch's metrics: what is kept of them by the minute is read, and users' own are put there.

Alarms are not here."""
