"""Finds the input objects of a transform job, in the order of their keys."""

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from sagehen.base.errors import Invalid
from sagehen.frame.s3_client import S3Error
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.sagemaker.transform.runner.errors import JobError
from sagehen.services.sagemaker.transform.runner.output_keys import (
    MAX_KEY_BYTES,
    output_location,
    relative_name,
)
from sagehen.services.sagemaker.transform.runner.own_outputs import OwnOutputs
from sagehen.services.sagemaker.transform.runner.store import ObjectStore
from sagehen.services.sagemaker.transform.runner_messages import RunnerSpec

__all__ = ["InputObject", "list_inputs"]

MAX_MANIFEST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class InputObject:
    """An object to transform."""

    source: Location
    output: Location
    size: int | None
    """None if the object has not been looked at"""
    etag: str | None
    problem: str | None = None
    """why it cannot have an output"""

    @property
    def name(self) -> str:
        """As in the data-log."""
        return f"{self.source.bucket}/{self.source.key}"


async def list_inputs(spec: RunnerSpec, store: ObjectStore) -> AsyncGenerator[InputObject]:
    """Yields all objects, also those that are done.

    Raises JobError: there are none, or they cannot be listed.
    """
    location = parse_location(spec.input_uri)
    output_path = parse_location(spec.output_uri)
    if spec.input_type == "ManifestFile":
        found, names = _named(store, location, output_path), _OutputNames("")
    else:
        found = _below(store, location, OwnOutputs(store, location, output_path))
        names = _OutputNames(location.key.rpartition("/")[2] or None)
    is_empty = True
    try:
        async for source, relative, size, etag, found_problem in found:
            is_empty = False
            output = output_location(output_path, relative)
            problem = _problem(output) or names.problem(relative) or found_problem
            yield InputObject(source, output, size, etag, problem)
    except S3Error as error:
        raise JobError("ClientError", f"{location.url} cannot be read: {error}") from error
    if is_empty:
        raise JobError("ClientError", f"No S3 objects found under {spec.input_uri}.")


class _Found(NamedTuple):
    source: Location
    relative: str
    size: int | None = None
    etag: str | None = None
    problem: str | None = None


async def _below(
    store: ObjectStore, prefix: Location, own_outputs: OwnOutputs
) -> AsyncGenerator[_Found]:
    after, is_last = "", False
    while not is_last:
        page = await store.list_page(prefix.bucket, prefix.key, after)
        for key, size, etag in page.objects:
            is_folder = not size and key.endswith("/")  # a console's marker
            if not is_folder and not await own_outputs.include(key):
                source = Location(prefix.bucket, key)
                yield _Found(source, relative_name(prefix.key, key), size, etag)
        is_last = page.is_last or not page.objects
        after = page.objects[-1].key if page.objects else after


async def _named(
    store: ObjectStore, manifest: Location, output_path: Location
) -> AsyncGenerator[_Found]:
    prefix, names = _read_manifest(manifest, await _read_whole(store, manifest))
    # Equal names are one object.
    sources = {Location(prefix.bucket, prefix.key + name): name for name in names}
    for source in sorted(sources, key=lambda source: source.key.encode()):
        relative = sources[source].removeprefix("/")
        is_input = output_location(output_path, relative) in sources
        problem = "Its output would replace another input." if is_input else None
        yield _Found(source, relative, problem=problem)


async def _read_whole(store: ObjectStore, manifest: Location) -> bytes:
    piece = await store.read(manifest.bucket, manifest.key, 0, MAX_MANIFEST_BYTES)
    if piece.object_size > MAX_MANIFEST_BYTES:
        raise _manifest_error(manifest, f"it is larger than {MAX_MANIFEST_BYTES} bytes")
    return piece.data


def _read_manifest(manifest: Location, data: bytes) -> tuple[Location, list[str]]:
    try:
        entries = msgspec.json.decode(data, type=list[dict[str, str] | str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _manifest_error(
            manifest, f"it is not a JSON list of a prefix and names: {error}"
        ) from error
    if not entries or not isinstance(entries[0], dict) or "prefix" not in entries[0]:
        raise _manifest_error(manifest, 'it does not begin with {"prefix": "s3://…"}')
    names = [entry for entry in entries[1:] if isinstance(entry, str)]
    if len(names) < len(entries) - 1:
        raise _manifest_error(manifest, "an entry behind the first is not a name")
    try:
        prefix = parse_location(entries[0]["prefix"])
    except Invalid as error:
        raise _manifest_error(manifest, str(error).removesuffix(".")) from error
    if not prefix.key and "" in names:
        raise _manifest_error(manifest, "a name is empty, as is the prefix behind the bucket")
    return prefix, names


def _manifest_error(manifest: Location, reason: str) -> JobError:
    return JobError("ClientError", f"The manifest {manifest.url} cannot be used: {reason}.")


def _problem(output: Location) -> str | None:
    size = len(output.key.encode())
    if size > MAX_KEY_BYTES:
        return f"The key of its output would have {size} bytes, more than {MAX_KEY_BYTES}."
    return None


class _OutputNames:
    """Finds inputs that would have the same output.

    Of a prefix, only names that begin with `beginning` can: where it is both a folder and the
    beginning of other names. None: no name can.
    """

    def __init__(self, beginning: str | None) -> None:
        self._beginning = beginning
        self._digests: set[bytes] = set()

    def problem(self, relative: str) -> str | None:
        if self._beginning is None or not relative.startswith(self._beginning):
            return None
        digest = hashlib.blake2b(relative.encode(), digest_size=16).digest()
        if digest in self._digests:
            return "Its output would have the same key as that of another input."
        self._digests.add(digest)
        return None
