"""ARNs: how SageMaker names what it keeps."""

from dataclasses import dataclass

__all__ = ["ArnMaker"]


@dataclass(frozen=True)
class ArnMaker:
    """Makes the ARNs of one account and region."""

    account_id: str
    region: str

    def sagemaker(self, kind: str, name: str) -> str:
        """`kind` is `model`, `endpoint-config` or `endpoint`. SageMaker lower-cases the name."""
        return f"arn:aws:sagemaker:{self.region}:{self.account_id}:{kind}/{name.lower()}"

    def sns(self, topic_name: str) -> str:
        """A topic's, whose name keeps its case."""
        return f"arn:aws:sns:{self.region}:{self.account_id}:{topic_name}"

    def event_rule(self, name: str) -> str:
        """A rule's of EventBridge, on the default bus; its name keeps its case."""
        return f"arn:aws:events:{self.region}:{self.account_id}:rule/{name}"

    def event_bus(self, name: str) -> str:
        return f"arn:aws:events:{self.region}:{self.account_id}:event-bus/{name}"

    def log_group(self, name: str) -> str:
        """A log group's of CloudWatch, as `logGroupArn` has it."""
        return f"arn:aws:logs:{self.region}:{self.account_id}:log-group:{name}"

    def sqs(self, queue_name: str) -> str:
        """A queue's, whose name keeps its case."""
        return f"arn:aws:sqs:{self.region}:{self.account_id}:{queue_name}"
