"""Finds a channel's objects, their paths and each host's share. A manifest:

[{"prefix": "s3://bucket/some/prefix/"}, "relative/path/1", "relative/path/2"]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from random import Random

import msgspec

from sagehen.agent.artifacts.unpack import check_name
from sagehen.agent.jobs.failures import JobFailed, download_failed, nothing_found
from sagehen.base.errors import ArtifactRejected, Invalid
from sagehen.frame.job_specs import ChannelSpec
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import NoSuchBucket, NoSuchKey
from sagehen.services.s3.storage.records import ListingQuery, ObjectInfo

__all__ = ["InputFile", "find_inputs", "list_below", "read_manifest", "share"]

MAX_MANIFEST_BYTES = 64 * 2**20


def read_manifest(objects: ObjectStore, manifest: Location) -> Iterator[tuple[Location, str]]:
    """Yields objects with their paths below the prefix. Blocks.

    Raises:
        JobFailed: the manifest is malformed.
        NoSuchBucket, NoSuchKey: it is missing.
    """
    with objects.open(manifest.bucket, manifest.key) as opened:
        if opened.info.size > MAX_MANIFEST_BYTES:
            raise _manifest_failure(manifest, f"it is larger than {MAX_MANIFEST_BYTES} bytes")
        data = b"".join(opened.chunks())
    try:
        entries = msgspec.json.decode(data, type=list[dict[str, str] | str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _manifest_failure(
            manifest, f"it is not a JSON list of a prefix and names: {error}"
        ) from error
    if not entries or not isinstance(entries[0], dict) or "prefix" not in entries[0]:
        raise _manifest_failure(manifest, 'it does not begin with {"prefix": "s3://…"}')
    try:
        prefix = parse_location(entries[0]["prefix"])
    except Invalid as error:
        raise _manifest_failure(manifest, str(error)) from error
    for number, entry in enumerate(entries[1:], 2):
        if not isinstance(entry, str):
            raise _manifest_failure(manifest, f"its entry {number} is not a name")
        # The prefix need not end at a folder.
        yield Location(prefix.bucket, prefix.key + entry), entry


def _manifest_failure(manifest: Location, reason: str) -> JobFailed:
    return JobFailed(f"ClientError: Data download failed:The manifest {manifest.url}: {reason}.")


MAX_OBJECTS = 500_000
"""names are held in memory"""
OBJECTS_PER_PAGE = 1000
GZIP_SUFFIX = ".gz"


class InputFile(msgspec.Struct, frozen=True, kw_only=True):
    """One object that becomes a file."""

    location: Location
    size: int
    modified_at: float
    """Unix time"""
    path: str
    """checked: inside its folder"""
    gunzip: bool = False


def find_inputs(
    objects: ObjectStore, channel: ChannelSpec, check: Callable[[], None]
) -> list[InputFile]:
    """Lists a channel's objects, ordered by key. Blocks.

    Args:
        check: called now and then; may raise.

    Raises:
        JobFailed: there are no objects, or a key cannot be a file.
    """
    location = parse_location(channel.s3_uri)
    gunzip = channel.compression == "Gzip"
    try:
        if channel.data_type == "S3Prefix":
            objects_found = _objects_below(objects, location, check)
        elif channel.data_type == "ManifestFile":
            objects_found = _objects_named(objects, location, check)
        else:  # The augmented manifest itself.
            objects_found = iter(
                [(objects.head(location.bucket, location.key), _last_part(location.key))]
            )
        inputs = [
            _to_input(info, path, gunzip)
            for info, path in _bounded(objects_found, f"The channel {channel.name}")
        ]
    except NoSuchBucket as error:
        raise JobFailed(nothing_found(location.url, location.bucket, str(error))) from error
    except NoSuchKey as error:
        raise JobFailed(download_failed("NoSuchKey", location.url)) from error
    if not inputs:
        raise JobFailed(nothing_found(location.url, location.bucket))
    _reject_collisions(inputs)
    return inputs


def list_below(
    objects: ObjectStore, folder: Location, check: Callable[[], None]
) -> list[InputFile]:
    """Lists the objects below a folder, if any. Blocks.

    Raises:
        JobFailed: a key cannot be a file.
        NoSuchBucket: the bucket is missing.
    """
    objects_found = _bounded(_objects_below(objects, folder.below(""), check), folder.url)
    return [_to_input(info, path, gunzip=False) for info, path in _without_leftovers(objects_found)]


def share(
    inputs: Sequence[InputFile], channel: ChannelSpec, number: int, hosts: int
) -> Sequence[InputFile]:
    """Returns the inputs of one host; `number` counts from 1."""
    if channel.distribution != "ShardedByS3Key" or hosts == 1:
        return inputs
    ordered = list(inputs)
    if channel.shuffle_seed is not None:
        Random(channel.shuffle_seed).shuffle(ordered)
    return ordered[number - 1 :: hosts]


def _objects_below(
    objects: ObjectStore, prefix: Location, check: Callable[[], None]
) -> Iterator[tuple[ObjectInfo, str]]:
    after, more = "", True
    while more:
        check()
        query = ListingQuery(prefix=prefix.key, after=after, limit=OBJECTS_PER_PAGE)
        page = objects.list_page(prefix.bucket, query)
        for info in page.objects:
            if info.size or not info.key.endswith("/"):  # else a console's folder marker
                yield info, _relative(prefix.key, info.key)
        after, more = page.last, page.truncated


def _relative(prefix: str, key: str) -> str:
    """`data/train` below `data/`, `data` or `data/tr` is `train`."""
    rest = key[len(prefix) :]
    if not prefix or prefix.endswith("/"):
        return rest
    if rest.startswith("/"):
        return rest[1:]
    return _last_part(prefix) + rest


def _objects_named(
    objects: ObjectStore, manifest: Location, check: Callable[[], None]
) -> Iterator[tuple[ObjectInfo, str]]:
    for location, path in read_manifest(objects, manifest):
        check()
        try:
            yield objects.head(location.bucket, location.key), path
        except NoSuchKey as error:
            raise JobFailed(download_failed("NoSuchKey", location.url)) from error
        except NoSuchBucket as error:
            raise JobFailed(nothing_found(location.url, location.bucket, str(error))) from error


def _last_part(key: str) -> str:
    return key.rpartition("/")[2]


def _bounded(
    objects: Iterable[tuple[ObjectInfo, str]], name: str
) -> Iterator[tuple[ObjectInfo, str]]:
    for count, entry in enumerate(objects, 1):
        if count > MAX_OBJECTS:
            raise JobFailed(
                f"ClientError: Data download failed:{name} has more than "
                f"{MAX_OBJECTS} objects. Put them into fewer, larger ones."
            )
        yield entry


def _to_input(info: ObjectInfo, path: str, gunzip: bool) -> InputFile:
    try:
        parts = check_name(path)
    except ArtifactRejected as error:
        raise JobFailed(_invalid_key(info.key, str(error))) from error
    if not parts or path != "/".join(parts):
        raise JobFailed(_invalid_key(info.key, "It is not a valid file path."))
    if gunzip:
        path = path.removesuffix(GZIP_SUFFIX)
    return InputFile(
        location=Location(info.bucket, info.key),
        size=info.size,
        modified_at=info.modified_at,
        path=path,
        gunzip=gunzip,
    )


def _without_leftovers(
    objects: Iterable[tuple[ObjectInfo, str]],
) -> list[tuple[ObjectInfo, str]]:
    """Drops the older of a file and a folder of one name, left by an attempt that ended early."""
    files: set[str] = set()
    folders: set[str] = set()
    remaining = []
    for info, path in sorted(objects, key=lambda entry: entry[0].modified_at, reverse=True):
        parents = [str(entry) for entry in PurePosixPath(path).parents]
        if path not in folders and files.isdisjoint(parents):
            files.add(path)
            folders.update(parents)
            remaining.append((info, path))
    return sorted(remaining, key=lambda entry: entry[0].key)


def _reject_collisions(inputs: Sequence[InputFile]) -> None:
    """Rejects two objects of one path, or a file where a folder is needed."""
    files: dict[str, str] = {}
    for item in inputs:
        key = item.location.key
        if files.setdefault(item.path, key) != key:
            reason = f"The key {files[item.path]!r} would be the same file, {item.path!r}."
            raise JobFailed(_invalid_key(key, reason))
    for item in inputs:
        parent = item.path.rpartition("/")[0]
        while parent:
            if parent in files:
                reason = f"The key {files[parent]!r} is a file where it needs a folder."
                raise JobFailed(_invalid_key(item.location.key, reason))
            parent = parent.rpartition("/")[0]


def _invalid_key(key: str, reason: str) -> str:
    shown = ascii(key if len(key) <= 200 else key[:200] + "…")
    return f"ClientError: Data download failed:The key {shown} cannot be a file: {reason}"
