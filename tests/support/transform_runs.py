"""What the runner of a transform job works with in tests: objects in memory, containers that are
functions, and a job that runs to its end."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from sagehen.base.errors import Unavailable
from sagehen.frame.s3_client import S3Error, S3Object, S3Page, S3Piece
from sagehen.http1.call import LocalAnswer
from sagehen.http1.client import Receiver
from sagehen.http1.fields import Headers
from sagehen.link.upstream import UpstreamWaiter
from sagehen.services.sagemaker.transform.runner.parameters import (
    ContainerParameters,
    read_parameters,
)
from sagehen.services.sagemaker.transform.runner.runner import Runner
from sagehen.services.sagemaker.transform.runner_messages import (
    InstanceAddress,
    RunnerEnded,
    RunnerSpec,
    S3Access,
)

__all__ = ["Container", "MemoryStore", "QuickClock", "TransformRun", "make_spec"]

PAGE = 3
"""objects in a page, so that listings have several"""


class QuickClock:
    """Sleeps take one turn of the event loop, and their time."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class MemoryStore:
    """An `ObjectStore`. `uploads`: of parts, by id, that have not ended."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.owners: dict[str, str | None] = {}
        """of all uploads"""
        self.requests: list[tuple[Any, ...]] = []
        self.buckets = {"in", "out"}
        self._count = 0

    def outputs(self) -> dict[str, bytes]:
        return {key: data for (bucket, key), data in self.objects.items() if bucket == "out"}

    async def list_page(self, bucket: str, prefix: str, after: str = "") -> S3Page:
        self._check(bucket)
        names = sorted((key for b, key in self.objects if b == bucket), key=str.encode)
        found = [n for n in names if n.startswith(prefix) and n.encode() > after.encode()]
        page = [
            S3Object(name, len(self.objects[bucket, name]), self._etag(bucket, name))
            for name in found[:PAGE]
        ]
        return S3Page(page, len(found) <= PAGE)

    async def read(
        self, bucket: str, key: str, start: int, length: int, etag: str | None = None
    ) -> S3Piece:
        self._check(bucket)
        self.requests.append(("read", key, start, length))
        await asyncio.sleep(0)
        if (bucket, key) not in self.objects:
            raise S3Error("NoSuchKey", 404, "The specified key does not exist.")
        data = self.objects[bucket, key]
        if etag not in (None, self._etag(bucket, key)):
            raise S3Error("PreconditionFailed", 412, "At least one condition did not hold.")
        return S3Piece(data[start : start + length], len(data), self._etag(bucket, key))

    async def put(
        self, bucket: str, key: str, body: Sequence[bytes], content_type: str | None = None
    ) -> None:
        self._check(bucket)
        await asyncio.sleep(0)
        self.objects[bucket, key] = b"".join(body)

    async def create_upload(
        self, bucket: str, key: str, content_type: str | None = None, owner: str | None = None
    ) -> str:
        self._check(bucket)
        self._count += 1
        upload_id = f"upload-{self._count}"
        self.uploads[upload_id] = {}
        self.owners[upload_id] = owner
        return upload_id

    async def upload_part(
        self, bucket: str, key: str, upload_id: str, number: int, body: Sequence[bytes]
    ) -> str:
        await asyncio.sleep(0)
        self.uploads[upload_id][number] = b"".join(body)
        return f"part-{number}"

    async def complete_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        parts = self.uploads.pop(upload_id)
        assert list(etags) == [f"part-{number}" for number in sorted(parts)]
        self.objects[bucket, key] = b"".join(parts[number] for number in sorted(parts))

    async def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        self.uploads.pop(upload_id, None)

    def _etag(self, bucket: str, key: str) -> str:
        return hashlib.md5(self.objects[bucket, key], usedforsecurity=False).hexdigest()

    def _check(self, bucket: str) -> None:
        if bucket not in self.buckets:
            raise S3Error("NoSuchBucket", 404, "The specified bucket does not exist")


class Container:
    """The `Upstreams` of an instance: `predict` answers a payload, with a status if it is no 200.

    It may raise ConnectionError, for an instance that ends with the request.
    """

    def __init__(self, predict: Callable[[bytes], Awaitable[bytes | tuple[int, bytes]]]) -> None:
        self._predict = predict
        self.payloads: list[bytes] = []
        self.headers: list[bytes] = []
        self.busy = 0
        self.most_busy = 0
        self.is_reachable = True

    def take(self, waiter: UpstreamWaiter) -> "_Call | None":
        if self.is_reachable:
            return _Call(self)
        asyncio.get_running_loop().call_soon(waiter.refused)
        return None

    async def ask(self, payload: bytes) -> tuple[int, bytes]:
        self.payloads.append(payload)
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        try:
            answer = await self._predict(payload)
        finally:
            self.busy -= 1
        return answer if isinstance(answer, tuple) else (200, answer)

    def forget(self, waiter: UpstreamWaiter) -> None: ...

    def close_idle(self, now: float) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    is_done = True


class _Call:
    not_begun = False
    fault: str | None = None

    def __init__(self, container: Container) -> None:
        self._container = container
        self._receiver: Receiver | None = None
        self._size = 0
        self._body = b""
        self._task: asyncio.Task[None] | None = None

    def send(
        self, receiver: Receiver, path: bytes, header_lines: bytes, body: list[bytes], size: int
    ) -> None:
        self._receiver, self._size = receiver, size
        self._container.headers.append(header_lines)
        self.write(b"".join(body))

    def write(self, data: bytes) -> None:
        self._body += data
        if len(self._body) >= self._size:
            self._task = asyncio.get_running_loop().create_task(self._answer())

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _answer(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        headers: Headers = [(b"Content-Type", b"text/upper")]
        try:
            status, body = await self._container.ask(self._body)
        except ConnectionError:
            receiver.answer_breaks()
            return
        receiver.answer_begins(status, headers, len(body))
        if body:
            receiver.answer_continues(body)
        receiver.answer_ends()


def make_spec(**changes: Any) -> RunnerSpec:
    fields = {
        "job_id": "0" * 32,
        "job_name": "job",
        "job_arn": "arn:aws:sagemaker:us-east-1:111122223333:transform-job/job",
        "s3": S3Access(address="unix:/nowhere", access_key="a", secret_key="s", region="r"),
        "started_at": 1_700_000_000.0,
        "input_type": "S3Prefix",
        "input_uri": "s3://in/data/",
        "output_uri": "s3://out/results",
        "split_type": "Line",
        "assemble_with": "Line",
    }
    return RunnerSpec(**{**fields, **changes})


class TransformRun:
    """Runs jobs on containers, one per instance; `parameters` is what each answers about itself, or
    None if it ends the connection."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.clock = QuickClock()
        self.messages: list[msgspec.Struct] = []
        self.parameters: LocalAnswer | None = LocalAnswer(404, b"")

    async def run(self, spec: RunnerSpec, *containers: Container) -> RunnerEnded:
        """Whatever becomes of the job, nothing is left over."""
        runner = self.start(spec, *containers)
        async with asyncio.timeout(30):
            ended = await runner.run()
        assert runner._window.used == 0
        assert not runner.outputs._open
        for instance in runner.instances._instances.values():
            assert instance.free == instance.slots
        return ended

    def start(self, spec: RunnerSpec, *containers: Container, is_pipeline: bool = False) -> Runner:
        """Returns a runner that knows its instances, and does not run yet.

        With `is_pipeline`, the containers are those of one instance.
        """
        by_address = {f"link:{number}": entry for number, entry in enumerate(containers)}
        runner = Runner(
            spec,
            self.store,
            self.clock,
            self.messages.append,
            connect=lambda address, _: by_address[address],
            ask_parameters=self._parameters,
        )
        instances = [
            InstanceAddress(instance_id=f"i-{address}", address=address) for address in by_address
        ]
        if is_pipeline:
            first = instances[0]
            instances = [msgspec.structs.replace(first, containers=tuple(by_address))]
        runner.instances.update(instances)
        return runner

    async def _parameters(self, address: str) -> ContainerParameters:
        if self.parameters is None:
            raise Unavailable("The connection was lost before the answer was whole.")
        return read_parameters(self.parameters)

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]
