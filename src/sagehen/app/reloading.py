"""Settings that take effect while the server runs: those that only control reads. Control starts
again with them, while gateways and instances go on."""

from sagehen.base.settings import Settings

__all__ = ["RELOADED", "changed_settings"]

RELOADED = frozenset(
    {
        "allowed_hosts",
        "async_concurrency",
        "async_history_seconds",
        "async_store_patience_seconds",
        "cluster_capacity_wait_seconds",
        "cluster_cpus",
        "cluster_leave_seconds",
        "cluster_memory_gib",
        "delivery_timeout_seconds",
        "mail_sender",
        "max_alarm_history_items",
        "max_alarms",
        "max_async_in_flight",
        "max_async_input_bytes",
        "max_async_redeliveries",
        "max_async_response_bytes",
        "max_deliveries",
        "max_endpoint_instances",
        "max_event_rules",
        "max_held_control_body_bytes",
        "max_job_instances",
        "max_job_restarts",
        "max_long_polls",
        "max_metric_samples",
        "max_metric_series",
        "max_queues",
        "max_receiver_deliveries",
        "max_running_transform_jobs",
        "max_topic_subscriptions",
        "max_topics",
        "max_transform_instances",
        "max_waiting_deliveries",
        "max_waiting_jobs",
        "max_waiting_transform_jobs",
        "metric_retention_seconds",
        "object_grace_seconds",
        "public_url",
        "serverless_idle_seconds",
        "smtp_host",
        "smtp_password",
        "smtp_port",
        "smtp_security",
        "smtp_username",
        "strict_capacity",
        "target_tracking_scale_in_seconds",
        "topics_required",
        "transform_runner_memory_bytes",
    }
)


def changed_settings(before: Settings, after: Settings) -> tuple[list[str], list[str]]:
    """Returns the names of settings that differ: those that can take effect now, and those for
    which the server has to be started again."""
    changed = [
        name for name in Settings.model_fields if getattr(before, name) != getattr(after, name)
    ]
    taken = [name for name in changed if name in RELOADED]
    return taken, [name for name in changed if name not in RELOADED]
