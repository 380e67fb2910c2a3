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
