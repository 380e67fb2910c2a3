"""Versions: there is one of each object, whose id is `null`."""

import re
from collections.abc import Mapping

from sagehen.api.s3.faults import invalid_argument
from sagehen.wire.faults import AwsError

__all__ = ["NULL_VERSION", "check_version"]

NULL_VERSION = "null"

_VERSION_ID = re.compile(r"[A-Za-z0-9._+/=-]{32,1024}")
"""What S3's ids look like: 32 characters of late, 64 or so before."""


def check_version(query: Mapping[str, str], key: str) -> None:
    """Raises AwsError where a version is asked for that cannot be there."""
    given = query.get("versionId", NULL_VERSION)
    if given == NULL_VERSION:
        return
    if not given:
        raise invalid_argument("Version id cannot be the empty string", "versionId", given)
    if not _VERSION_ID.fullmatch(given):
        raise invalid_argument("Invalid version id specified", "versionId", given)
    raise AwsError(
        "NoSuchVersion", "The specified version does not exist.", 404, Key=key, VersionId=given
    )
