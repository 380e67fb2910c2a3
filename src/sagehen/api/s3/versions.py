"""Versions: there is one of each object, whose id is `null`."""

from collections.abc import Mapping

from sagehen.wire.faults import AwsError

__all__ = ["NULL_VERSION", "check_version"]

NULL_VERSION = "null"


def check_version(query: Mapping[str, str]) -> None:
    """Raises AwsError where a version is asked for that cannot be there."""
    given = query.get("versionId", NULL_VERSION)
    if given not in ("", NULL_VERSION):
        raise AwsError(
            "NoSuchVersion",
            "The specified version does not exist. Sagehen's buckets are not versioned.",
            404,
            VersionId=given,
        )
