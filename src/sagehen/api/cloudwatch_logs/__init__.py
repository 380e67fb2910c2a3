"""CloudWatch Logs, to read: what the containers of this machine print. The operations by name."""

from sagehen.api.call import Operation
from sagehen.api.cloudwatch_logs.describing import describe_log_groups, describe_log_streams
from sagehen.api.cloudwatch_logs.filtering import filter_log_events
from sagehen.api.cloudwatch_logs.reading import get_log_events

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation] = {
    "DescribeLogGroups": describe_log_groups,
    "DescribeLogStreams": describe_log_streams,
    "FilterLogEvents": filter_log_events,
    "GetLogEvents": get_log_events,
}
