"""EventBridge: rules over events on the default bus, and where those go. The operations by name."""

from sagehen.api.call import Operation
from sagehen.api.eventbridge.buses import describe_event_bus, list_event_buses
from sagehen.api.eventbridge.putting import match_event_pattern, put_events
from sagehen.api.eventbridge.rules import (
    delete_rule,
    describe_rule,
    disable_rule,
    enable_rule,
    list_rule_names_by_target,
    list_rules,
    put_rule,
)
from sagehen.api.eventbridge.tags import list_tags_for_resource, tag_resource, untag_resource
from sagehen.api.eventbridge.targets import list_targets_by_rule, put_targets, remove_targets

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation] = {
    "DeleteRule": delete_rule,
    "DescribeEventBus": describe_event_bus,
    "DescribeRule": describe_rule,
    "DisableRule": disable_rule,
    "EnableRule": enable_rule,
    "ListEventBuses": list_event_buses,
    "ListRuleNamesByTarget": list_rule_names_by_target,
    "ListRules": list_rules,
    "ListTagsForResource": list_tags_for_resource,
    "ListTargetsByRule": list_targets_by_rule,
    "PutEvents": put_events,
    "PutRule": put_rule,
    "PutTargets": put_targets,
    "RemoveTargets": remove_targets,
    "TagResource": tag_resource,
    "TestEventPattern": match_event_pattern,
    "UntagResource": untag_resource,
}
