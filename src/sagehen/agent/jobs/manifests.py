"""Manifests: objects that name the objects of a channel.

[{"prefix": "s3://bucket/some/prefix/"}, "relative/path/1", "relative/path/2"]
"""

from collections.abc import Iterator

import msgspec

from sagehen.agent.jobs.failures import JobFailed
from sagehen.domain.locations import Location, parse_location
from sagehen.errors import Invalid
from sagehen.objects import ObjectStore

__all__ = ["read_manifest"]

MOST_BYTES = 64 * 2**20


def read_manifest(objects: ObjectStore, manifest: Location) -> Iterator[tuple[Location, str]]:
    """Each object it names, with its path below the prefix. Blocks.

    Raises:
        JobFailed: it is no manifest.
        NoSuchBucket, NoSuchKey: it is not there.
    """
    with objects.open(manifest.bucket, manifest.key) as opened:
        if opened.info.size > MOST_BYTES:
            raise _refused(manifest, f"it is larger than {MOST_BYTES} bytes")
        data = b"".join(opened.chunks())
    try:
        entries = msgspec.json.decode(data, type=list[dict[str, str] | str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _refused(manifest, f"it is not a JSON list of a prefix and names: {error}") from error
    if not entries or not isinstance(entries[0], dict) or "prefix" not in entries[0]:
        raise _refused(manifest, 'it does not begin with {"prefix": "s3://…"}')
    try:
        prefix = parse_location(entries[0]["prefix"])
    except Invalid as error:
        raise _refused(manifest, str(error)) from error
    for number, entry in enumerate(entries[1:], 2):
        if not isinstance(entry, str):
            raise _refused(manifest, f"its entry {number} is not a name")
        # As text: the prefix need not end where a folder does.
        yield Location(prefix.bucket, prefix.key + entry), entry


def _refused(manifest: Location, why: str) -> JobFailed:
    return JobFailed(f"ClientError: Data download failed:The manifest {manifest.url}: {why}.")
