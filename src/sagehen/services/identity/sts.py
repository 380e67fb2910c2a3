"""The one operation of sts that clients of SageMaker need: who am I."""

from typing import Any

from sagehen.frame.context import Operation, RequestContext
from sagehen.services.identity.iam import ROLE_NAME, role_id

__all__ = ["OPERATIONS", "get_caller_identity"]

_SESSION_NAME = "sagehen"


def get_caller_identity(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """A role's session: from its ARN the SageMaker SDK makes the execution role's."""
    return {
        "UserId": f"{role_id(ROLE_NAME)}:{_SESSION_NAME}",
        "Account": call.settings.account_id,
        "Arn": call.arns.role_session(ROLE_NAME, _SESSION_NAME),
    }


OPERATIONS: dict[str, Operation] = {"GetCallerIdentity": get_caller_identity}
