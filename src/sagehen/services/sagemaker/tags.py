"""AddTags, ListTags, DeleteTags."""

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.services.sagemaker.errors import missing, refused
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.transform import store as transform_jobs

__all__ = ["add_tags", "check_tags", "delete_tags", "list_tags"]

MAX_TAGS = 50
_RESERVED_PREFIX = "aws:"
_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:([a-z-]+)/(.+)")
_KINDS = {
    "model": ("model", models.get),
    "endpoint-config": ("endpoint configuration", endpoint_configs.get),
    "endpoint": ("endpoint", endpoints.get),
    "training-job": ("training job", training_jobs.get),
    "transform-job": ("transform job", transform_jobs.get),
}


def add_tags(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn, new_tags = params["ResourceArn"].lower(), check_tags(params["Tags"])
    with call.database.write() as connection:
        _check_resource(call, connection, arn)
        after = tags.get(connection, arn) | new_tags
        if len(after) > MAX_TAGS:
            raise refused(
                f"A resource may have {MAX_TAGS} tags; this request would make {len(after)}."
            )
        tags.put(connection, arn, new_tags)
    return {"Tags": _listed(after)}


def list_tags(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns all tags: the smallest page holds MAX_TAGS."""
    if "NextToken" in params:
        raise refused("Invalid pagination token.")
    arn = params["ResourceArn"].lower()
    with call.database.read() as connection:
        _check_resource(call, connection, arn)
        return {"Tags": _listed(tags.get(connection, arn))}


def delete_tags(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceArn"].lower()
    with call.database.write() as connection:
        _check_resource(call, connection, arn)
        tags.delete(connection, arn, params["TagKeys"])
    return {}


def check_tags(tag_list: list[dict[str, str]]) -> dict[str, str]:
    """Returns tags by key; raises AwsError for duplicate and reserved keys."""
    keys = [tag["Key"] for tag in tag_list]
    if reserved := [key for key in keys if key.lower().startswith(_RESERVED_PREFIX)]:
        raise refused(
            f"aws: prefixed tag key names are not allowed for external use: {reserved[0]}"
        )
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise refused(f"The tag key {twice} is given more than once.")
    return {tag["Key"]: tag["Value"] for tag in tag_list}


def _check_resource(call: RequestContext, connection: Connection, arn: str) -> None:
    match = _ARN.fullmatch(arn)
    if match is None or match[1] not in _KINDS:
        raise refused(
            f'"{arn}" is not the ARN of a resource of this server: models, endpoint '
            "configurations, endpoints, training and transform jobs can be tagged."
        )
    kind, get = _KINDS[match[1]]
    if arn != call.arns.sagemaker(match[1], match[2]) or get(connection, match[2]) is None:
        raise missing(kind, arn)


def _listed(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(values.items())]
