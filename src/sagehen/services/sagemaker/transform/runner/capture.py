"""Data capture of a transform job: manifests of what went in and what came out (no payloads)."""

import uuid
from collections.abc import Collection
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.sagemaker.transform.runner.listing import InputObject, list_inputs
from sagehen.services.sagemaker.transform.runner.outputs import Outputs
from sagehen.services.sagemaker.transform.runner_messages import Capture, RunnerSpec

__all__ = ["capture_location", "write_manifests"]


def capture_location(spec: RunnerSpec, capture: Capture, side: str) -> Location:
    """`side`: `input` or `output`. Each runner of a job writes the same manifests."""
    hour = datetime.fromtimestamp(spec.started_at, UTC).strftime("%Y/%m/%d/%H")
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"{spec.job_arn}/{spec.started_at}/{side}")
    return parse_location(capture.uri).below(f"{side}/{hour}/{number}.json")


async def write_manifests(
    spec: RunnerSpec, capture: Capture, outputs: Outputs, failed_keys: Collection[str]
) -> None:
    """Lists the inputs again: the manifests hold all of them, and no process remembers so many.

    Raises ObjectError, JobError or Unavailable.
    """
    inputs = _Manifest(outputs, capture_location(spec, capture, "input"))
    results = _Manifest(outputs, capture_location(spec, capture, "output"))
    output_folder = parse_location(spec.output_uri).below("")
    async with aclosing(list_inputs(spec, outputs.store)) as items:
        async for item in items:
            await inputs.add(_input_folder(spec, item), item.source)
            if item.source.key not in failed_keys:
                await results.add(output_folder, item.output)
    await inputs.finish()
    await results.finish()


def _input_folder(spec: RunnerSpec, item: InputObject) -> Location:
    if spec.input_type == "ManifestFile":
        return Location(item.source.bucket, "")
    location = parse_location(spec.input_uri)
    return Location(location.bucket, location.key[: location.key.rfind("/") + 1])


class _Manifest:
    def __init__(self, outputs: Outputs, location: Location) -> None:
        self._output = outputs.open(location, "application/json")
        self._is_empty = True

    async def add(self, folder: Location, entry: Location) -> None:
        """`folder`: the same for all entries."""
        if self._is_empty:
            self._is_empty = False
            await self._output.write(b'[{"prefix":%b}' % msgspec.json.encode(folder.url))
        name = entry.url.removeprefix(folder.url)
        await self._output.write(b",%b" % msgspec.json.encode(name))

    async def finish(self) -> None:
        await self._output.write(b"[]" if self._is_empty else b"]")
        await self._output.finish()
