"""ARNs: how SageMaker names what it keeps."""

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["ArnMaker", "partition_of"]

_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"))
"""Beginnings of the regions whose partition is not `aws`; secret regions are left out."""


def partition_of(region: str) -> str:
    """The partition that a region belongs to: `cn-north-1` to `aws-cn`, most to `aws`."""
    return next((name for beginning, name in _PARTITIONS if region.startswith(beginning)), "aws")


@dataclass(frozen=True)
class ArnMaker:
    """Makes the ARNs of one account and region."""

    account_id: str
    region: str
    partition: str = field(default="")
    """Empty stands for the region's own."""

    def __post_init__(self) -> None:
        if not self.partition:
            object.__setattr__(self, "partition", partition_of(self.region))

    @classmethod
    def of(cls, settings: "Settings") -> "ArnMaker":
        return cls(settings.account_id, settings.region, settings.partition or "")

    def sagemaker(self, kind: str, name: str) -> str:
        """`kind` is `model`, `endpoint-config` or `endpoint`. SageMaker lower-cases the name."""
        return self._arn("sagemaker", f"{kind}/{name.lower()}")

    def sns(self, topic_name: str) -> str:
        """A topic's, whose name keeps its case."""
        return self._arn("sns", topic_name)

    def event_rule(self, name: str) -> str:
        """A rule's of EventBridge, on the default bus; its name keeps its case."""
        return self._arn("events", f"rule/{name}")

    def event_resource(self, kind: str, name: str, unique: str) -> str:
        """`kind` is `connection` or `api-destination`; `unique` is its own, unlike the name."""
        return self._arn("events", f"{kind}/{name}/{unique}")

    def connection_secret(self, name: str, connection_arn: str) -> str:
        """The secret's that EventBridge would keep a connection's credentials in; always the same
        for a connection."""
        unique = uuid.uuid5(uuid.NAMESPACE_URL, connection_arn)
        resource = f"secret:events!connection/{name}/{unique}-{unique.hex[:6]}"
        return self._arn("secretsmanager", resource)

    def event_bus(self, name: str) -> str:
        return self._arn("events", f"event-bus/{name}")

    def log_group(self, name: str) -> str:
        """A log group's of CloudWatch, as `logGroupArn` has it."""
        return self._arn("logs", f"log-group:{name}")

    def sqs(self, queue_name: str) -> str:
        """A queue's, whose name keeps its case."""
        return self._arn("sqs", queue_name)

    def role(self, name: str) -> str:
        """A role's of IAM, which belongs to no region."""
        return f"arn:{self.partition}:iam::{self.account_id}:role/{name}"

    def role_session(self, role: str, session: str) -> str:
        """An assumed role's of STS."""
        return f"arn:{self.partition}:sts::{self.account_id}:assumed-role/{role}/{session}"

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account_id}:{resource}"
