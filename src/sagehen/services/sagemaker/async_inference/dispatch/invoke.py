"""Sends requests to containers and reads their answers."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import SagehenError
from sagehen.base.retry import AWAY, RetryPolicy
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.async_inference.dispatch.claims import LeasedRequest
from sagehen.services.sagemaker.async_inference.dispatch.completion import AsyncEnding
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    input_missing,
    not_sendable,
    timed_out,
    unreadable_answer,
)
from sagehen.services.sagemaker.async_inference.dispatch.inputs import Input, Inputs
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer
from sagehen.services.sagemaker.async_inference.dispatch.notices import (
    MAX_BODY_BYTES,
    wants_body,
)
from sagehen.services.sagemaker.async_inference.dispatch.outputs import Spool
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    QueuedRequest,
)

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "MAX_LOGGED_BYTES",
    "ContainerInvoker",
    "ContainerReply",
    "Containers",
    "InputBroken",
    "InstanceLost",
    "NotStarted",
]

LONGEST_FIELD_BYTES = 64 * 1024
NOT_STARTED = "x-sagehen-not-started"
"""With 503: the container did not begin, and will not."""


class NotStarted(SagehenError):
    """The container did not begin: another may be asked."""


class InstanceLost(SagehenError):
    """The connection ended too early; the container may have worked on the request."""


class InputBroken(SagehenError):
    """The input could not be read to its end."""


class ContainerReply(NamedTuple):
    status: int
    content_type: str | None
    spool: Spool

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Containers:
    """The HTTP client of all containers.

    Each connection serves one request: on a reused one, a closed idle connection would look like a
    lost instance.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def invoke(
        self, address: str, request: AsyncRequest, body: Input, make_spool: Callable[[], Spool]
    ) -> ContainerReply:
        """POST the input to the container at `address` (`unix:/path` or `tcp:host:port`).

        Raises:
            AsyncFailure: it timed out, or the answer cannot be kept.
            NotStarted, InstanceLost, InputBroken
        """
        import aiohttp  # a fifth of control's start, and not every server has such requests

        spool = make_spool()
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await self._post(address, request, body, spool)
        except BaseException as error:
            spool.discard()
            if isinstance(error, TimeoutError):
                raise timed_out(request.timeout_seconds) from error
            if body.broken is not None and isinstance(error, aiohttp.ClientError):
                raise InputBroken(str(body.broken)) from body.broken
            if isinstance(error, aiohttp.ClientConnectorError):
                raise NotStarted(str(error)) from error
            if isinstance(error, aiohttp.ClientResponseError):
                raise unreadable_answer(error.message) from error
            if isinstance(error, aiohttp.ClientError | ConnectionError):
                raise InstanceLost(str(error) or type(error).__name__) from error
            if isinstance(error, ValueError):
                raise not_sendable(str(error)) from error
            raise

    async def _post(
        self, address: str, request: AsyncRequest, body: Input, spool: Spool
    ) -> ContainerReply:
        url, session = self._reach(address)
        # One piece needs no extra task.
        data = (body.whole or body.chunks()) if body.size else None
        async with session.post(
            url, data=data, headers=_headers(request, body), allow_redirects=False
        ) as response:
            if response.status == 503 and NOT_STARTED in response.headers:
                raise NotStarted("The container takes no requests now.")
            async for piece in response.content.iter_any():
                await spool.write(piece)
            await spool.end()
            return ContainerReply(response.status, response.headers.get("Content-Type"), spool)

    def _reach(self, address: str) -> tuple[str, "aiohttp.ClientSession"]:
        kind, _, where = address.partition(":")
        url = "http://localhost/invocations" if kind == "unix" else f"http://{where}/invocations"
        session = self._sessions.get(address)
        if session is None:
            session = self._sessions[address] = _open(kind, where)
        return url, session

    async def keep(self, addresses: Collection[str]) -> None:
        for address in [session for session in self._sessions if session not in addresses]:
            await self._sessions.pop(address).close()

    async def close(self) -> None:
        await self.keep(())


def _open(kind: str, where: str) -> "aiohttp.ClientSession":
    import aiohttp

    connector = (
        aiohttp.UnixConnector(path=where, force_close=True, limit=0)
        if kind == "unix"
        else aiohttp.TCPConnector(force_close=True, limit=0)
    )
    return aiohttp.ClientSession(
        connector=connector,
        # A Unix socket connects at once or not at all.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None if kind == "unix" else 10),
        cookie_jar=aiohttp.DummyCookieJar(),
        # The output object has the container's bytes.
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        max_line_size=LONGEST_FIELD_BYTES,
        max_field_size=LONGEST_FIELD_BYTES,
    )


def _headers(request: AsyncRequest, body: Input) -> dict[str, str]:
    """Use the object's content type by default: AWS's SDK uploads with one and invokes without."""
    fields = {
        "Content-Type": request.content_type or body.content_type,
        "Accept": request.accept,
        "X-Amzn-SageMaker-Custom-Attributes": request.custom_attributes,
        "X-Amzn-SageMaker-Inference-Id": request.inference_id,
        "Content-Length": str(body.size),
    }
    return {name: value for name, value in fields.items() if value is not None}


MAX_LOGGED_BYTES = 2000
"""of an error answer"""


@dataclass(frozen=True)
class ContainerInvoker:
    """Asks containers for leased requests."""

    objects: ObjectStore
    inputs: Inputs
    containers: Containers
    threads: Threads
    retry: RetryPolicy
    clock: Clock
    max_response_bytes: int
    release_slot: Callable[[LeasedRequest], None]

    async def invoke_leased(self, job: LeasedRequest) -> tuple[ContainerReply, AsyncEnding]:
        """Returns the container's answer, of any status, and the times; frees the slot.

        Raises:
            AsyncFailure: no answer, or broken off.
            NotStarted, InstanceLost, InputBroken: as `Containers.invoke`.
        """
        container = job.container
        if container is None:
            raise NotStarted("The instance that it was leased for is gone.")
        if job.broken_off is not None:
            raise job.broken_off
        invocation = asyncio.ensure_future(self._invoke(job, container))
        job.invocation = invocation
        try:
            return await invocation
        except asyncio.CancelledError:
            if job.broken_off is not None and not _is_cancelled():
                raise job.broken_off from None
            raise
        finally:
            job.invocation = None
            self.release_slot(job)

    async def _invoke(
        self, job: LeasedRequest, container: RoutedContainer
    ) -> tuple[ContainerReply, AsyncEnding]:
        request = job.queued.request
        try:
            body = await self.retry(lambda: self.inputs.open(job.queued, job.input))
        except AWAY as error:
            raise input_missing(request.input_location or "the queue", str(error)) from error
        try:
            began = self.clock.monotonic()
            answer = await self.containers.invoke(
                container.address, request, body, lambda: self.spool(job.queued)
            )
            container.answered()
            ending = AsyncEnding(
                AsyncOutcome(state=AsyncState.SUCCEEDED, status=answer.status),
                model_seconds=self.clock.monotonic() - began,
                download_seconds=body.seconds,
            )
            return answer, ending
        finally:
            body.close()

    def spool(self, queued: QueuedRequest) -> Spool:
        """Returns a spool that keeps enough in memory for a notice or the log."""
        in_notice = wants_body(queued, success=True) or wants_body(queued, success=False)
        return Spool(
            self.objects.draft,
            self.threads,
            self.retry,
            self.max_response_bytes,
            MAX_BODY_BYTES if in_notice else MAX_LOGGED_BYTES,
        )


def _is_cancelled() -> bool:
    """Whether the whole attempt is cancelled, and not only the invocation."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
