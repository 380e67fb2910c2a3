"""Metric math: expressions over time series, for GetMetricData and alarms."""
