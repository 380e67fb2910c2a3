"""Makes ARNs."""

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["ArnMaker", "partition_of"]

_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"))
"""prefixes of regions outside of the partition `aws`, without secret regions"""


def partition_of(region: str) -> str:
    return next((name for beginning, name in _PARTITIONS if region.startswith(beginning)), "aws")


@dataclass(frozen=True)
class ArnMaker:
    """Makes the ARNs of one account and region."""

    account_id: str
    region: str
    partition: str = field(default="")
    """empty: the region's partition"""

    def __post_init__(self) -> None:
        if not self.partition:
            object.__setattr__(self, "partition", partition_of(self.region))

    @classmethod
    def of(cls, settings: "Settings") -> "ArnMaker":
        return cls(settings.account_id, settings.region, settings.partition or "")

    def sagemaker(self, kind: str, name: str) -> str:
        """`kind` is `model`, `endpoint-config` or `endpoint`; SageMaker lower-cases the name."""
        return self._arn("sagemaker", f"{kind}/{name.lower()}")

    def sns(self, topic_name: str) -> str:
        return self._arn("sns", topic_name)

    def event_rule(self, name: str) -> str:
        """Names a rule on the default bus."""
        return self._arn("events", f"rule/{name}")

    def event_resource(self, kind: str, name: str, unique: str) -> str:
        """`kind` is `connection` or `api-destination`; `unique` is a random part of the ARN."""
        return self._arn("events", f"{kind}/{name}/{unique}")

    def connection_secret(self, name: str, connection_arn: str) -> str:
        """Returns the same ARN each time for a connection."""
        unique = uuid.uuid5(uuid.NAMESPACE_URL, connection_arn)
        resource = f"secret:events!connection/{name}/{unique}-{unique.hex[:6]}"
        return self._arn("secretsmanager", resource)

    def event_bus(self, name: str) -> str:
        return self._arn("events", f"event-bus/{name}")

    def alarm(self, name: str) -> str:
        return self._arn("cloudwatch", f"alarm:{name}")

    def log_group(self, name: str) -> str:
        """Returns the form without `:*`, as in `logGroupArn`."""
        return self._arn("logs", f"log-group:{name}")

    def sqs(self, queue_name: str) -> str:
        return self._arn("sqs", queue_name)

    def scalable_target(self, target_id: str) -> str:
        return self._arn("application-autoscaling", f"scalable-target/{target_id}")

    def scaling_policy(self, policy_id: str, resource_id: str, name: str) -> str:
        resource = f"resource/sagemaker/{resource_id}:policyName/{name}"
        return self._arn("autoscaling", f"scalingPolicy:{policy_id}:{resource}")

    def scheduled_action(self, action_id: str, resource_id: str, name: str) -> str:
        resource = f"resource/sagemaker/{resource_id}:scheduledActionName/{name}"
        return self._arn("autoscaling", f"scheduledAction:{action_id}:{resource}")

    def role(self, name: str) -> str:
        return f"arn:{self.partition}:iam::{self.account_id}:role/{name}"

    def role_session(self, role: str, session: str) -> str:
        return f"arn:{self.partition}:sts::{self.account_id}:assumed-role/{role}/{session}"

    def root(self) -> str:
        return f"arn:{self.partition}:iam::{self.account_id}:root"

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account_id}:{resource}"
