"""The settings of storage, the server and metrics."""

import os
from pathlib import Path
from urllib.parse import quote

from pydantic import Field

from sagehen.base.settings.section import Items, Section

__all__ = ["MetricSettings", "ServerSettings", "StorageSettings"]


class StorageSettings(Section):
    """Storage."""

    home: Path = Field(
        Path("~/.sagehen"),
        description="The folder of the server's data. Cannot be set in a settings file.",
    )
    config: Path | None = Field(
        None,
        description="The settings file; default: sagehen.toml in the home. Cannot be set in it.",
    )
    database_url: str | None = Field(
        None, description="SQLAlchemy URL of the state; default: SQLite in the home."
    )
    object_store_url: str | None = Field(
        None,
        description="An S3 store for objects, as s3://bucket/prefix (credentials from "
        "object_store_options); default: files in the home.",
    )
    object_store_options: dict[str, str] = Field(
        default_factory=dict, description="Options that are passed to obstore unchanged."
    )
    object_trash_seconds: float = Field(
        86_400,
        ge=0,
        description="How long object files that the state does not name stay in the home's "
        "objects/trash before they are deleted.",
    )
    object_grace_seconds: float = Field(
        3600,
        ge=0,
        description="Age below which object files are never moved to the trash.",
    )

    @property
    def state_url(self) -> str:
        """The SQLAlchemy URL of the state."""
        # Quoted: the URL would end at a `?` of the path.
        return self.database_url or f"sqlite:///{quote(str(self.home / 'state.db'))}"


class ServerSettings(Section):
    """The server."""

    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(9000, ge=0, le=65535, description="The one port for every service.")
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^/?#\s]+/?$",
        description="The URL at which others reach this server: for links in notifications and the "
        "URLs of queues; default: its address and port.",
    )
    allowed_hosts: Items = Field(
        (),
        description="Further host names that are accepted in unsigned requests (to open metrics, "
        "services without API keys, and links in notifications): one text with commas, or a list. "
        "`localhost`, addresses and the host of public_url are always accepted.",
    )
    open_metrics: bool = Field(
        False,
        description="Let anybody who reaches the port read `/_sagehen/metrics`. Else reading needs "
        "the token of the home, unless server and request use a loopback address.",
    )
    gateways: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Gateway processes on the port; default: one per two cores, but two on a "
        "machine of two or three.",
    )
    account_id: str = Field(
        "000000000000", pattern=r"^[0-9]{12}$", description="The AWS account id."
    )
    region: str = Field("us-east-1", pattern=r"^[a-z0-9-]+$", description="The AWS region.")
    partition: str | None = Field(
        None,
        pattern=r"^aws(-[a-z]+)*$",
        description="The partition in ARNs; default: that of the ARNs in the state, else the "
        "region's (`aws-cn` of `cn-north-1`).",
    )
    log_level: str = Field(
        "INFO",
        pattern=r"^(DEBUG|INFO|WARNING|ERROR)$",
        description="The lowest level that is logged.",
    )

    @property
    def gateway_count(self) -> int:
        """Gateway processes, at least one."""
        # Small models take less processor time than a gateway does for their requests.
        cores = len(os.sched_getaffinity(0))
        return self.gateways or max(min(cores, 2), cores // 2)


class MetricSettings(Section):
    """Metrics."""

    metric_retention_seconds: int = Field(
        15 * 86_400, ge=3600, description="How long samples of metrics are kept, one per minute."
    )
    max_metric_series: int = Field(
        10_000,
        gt=0,
        description="Series of metrics, each a metric with its dimensions and unit. PutMetricData "
        "is refused beyond it; the server's own values are dropped.",
    )
    max_metric_samples: int = Field(
        5_000_000,
        gt=0,
        description="Samples of all metrics together; with more, they are kept for a shorter time.",
    )
    max_alarms: int = Field(
        5000, gt=0, description="CloudWatch alarms; more are refused with LimitExceeded."
    )
    max_alarm_history_items: int = Field(
        500_000,
        gt=0,
        description="Items in the history of all alarms together, which is kept for 30 days; with "
        "more, the oldest go.",
    )
