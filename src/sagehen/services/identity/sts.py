"""GetCallerIdentity, the STS operation that SageMaker clients need."""

from typing import Any

from sagehen.frame.context import Operation, RequestContext
from sagehen.services.identity.iam import ROLE_NAME, role_id

__all__ = ["OPERATIONS", "get_caller_identity"]

_SESSION_NAME = "sagehen"


def get_caller_identity(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns a role session; the SageMaker SDK derives the execution role from its ARN."""
    return {
        "UserId": f"{role_id(ROLE_NAME)}:{_SESSION_NAME}",
        "Account": call.settings.account_id,
        "Arn": call.arns.role_session(ROLE_NAME, _SESSION_NAME),
    }


OPERATIONS: dict[str, Operation] = {"GetCallerIdentity": get_caller_identity}
