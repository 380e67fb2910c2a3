"""EventBridge: rules, their targets, events."""
