"""The IAM operations that SageMaker clients need: every role exists and may do everything."""

import base64
import hashlib
import json
import urllib.parse
from datetime import UTC, datetime
from typing import Any

from sagehen.frame.context import Operation, RequestContext

__all__ = ["OPERATIONS", "ROLE_NAME", "get_role", "role_id", "simulate_principal_policy"]

ROLE_NAME = "SagehenRole"
"""the role of every caller"""
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


def get_role(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns a role of any name that SageMaker may assume; Sagehen ignores roles."""
    name = params.get("RoleName", ROLE_NAME)
    return {
        "Role": {
            "Path": "/",
            "RoleName": name,
            "RoleId": role_id(name),
            "Arn": call.arns.role(name),
            "CreateDate": _CREATED,
            # IAM percent-encodes policies, and clients decode them.
            "AssumeRolePolicyDocument": urllib.parse.quote(json.dumps(_TRUST), safe=""),
            "MaxSessionDuration": 3600,
        }
    }


def simulate_principal_policy(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Allows every action: Sagehen ignores roles."""
    resources = params.get("ResourceArns") or ["*"]
    return {
        "EvaluationResults": [
            {
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": "allowed",
                "MatchedStatements": [],
                "MissingContextValues": [],
            }
            for action in params["ActionNames"]
            for resource in resources
        ],
        "IsTruncated": False,
    }


def role_id(name: str) -> str:
    """Returns an id in IAM's form, fixed for a name."""
    digest = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode()
    return "AROA" + digest[:17]


OPERATIONS: dict[str, Operation] = {
    "GetRole": get_role,
    "SimulatePrincipalPolicy": simulate_principal_policy,
}
