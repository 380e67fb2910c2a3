"""The client of all containers that asynchronous requests go to: bodies of any size both ways."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.http1.fields import Headers
from sagehen.http1.pool import Connector, open_connection
from sagehen.link.upstream import INVOCATIONS, Upstream, Upstreams, open_upstreams
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    not_sendable,
    timed_out,
    unreadable_answer,
)
from sagehen.services.sagemaker.async_inference.dispatch.inputs import Input
from sagehen.services.sagemaker.async_inference.dispatch.outputs import Spool
from sagehen.services.sagemaker.async_inference.records import AsyncRequest

__all__ = ["ContainerReply", "Containers", "InputBroken", "InstanceLost", "NotStarted"]

NOT_STARTED = b"x-sagehen-not-started"
"""With 503: the container did not begin, and will not."""
HELD_BYTES = 256 * 1024
"""of an answer in memory, before the container has to wait for the disk"""


_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""in the value of a header (RFC 9110, 5.5)"""


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
    """Sends requests to containers, over their links or over HTTP.

    An HTTP connection serves one request: on a reused one, a closed idle connection would look like
    a lost instance.
    """

    def __init__(self, clock: Clock, connector: Connector = open_connection) -> None:
        self._clock = clock
        self._connector = connector
        self._upstreams: dict[str, Upstreams] = {}

    async def invoke(
        self, address: str, request: AsyncRequest, body: Input, make_spool: Callable[[], Spool]
    ) -> ContainerReply:
        """POST the input to the container at `address`, as of `open_upstreams`.

        Raises:
            AsyncFailure: it timed out, or the answer cannot be kept.
            NotStarted, InstanceLost, InputBroken
        """
        header_lines = _header_lines(request, body)
        spool = make_spool()
        exchange = _ContainerExchange(self._reach(address), header_lines, body, spool)
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await exchange.run()
        except BaseException as error:
            spool.discard()
            if isinstance(error, TimeoutError):
                raise timed_out(request.timeout_seconds) from error
            raise
        finally:
            exchange.release()

    def _reach(self, address: str) -> Upstreams:
        upstreams = self._upstreams.get(address)
        if upstreams is None:
            upstreams = open_upstreams(
                address, self._clock, reuses_connections=False, connector=self._connector
            )
            self._upstreams[address] = upstreams
        return upstreams

    async def keep(self, addresses: Collection[str]) -> None:
        for address in [known for known in self._upstreams if known not in addresses]:
            self._upstreams.pop(address).close()

    async def close(self) -> None:
        while self._upstreams:
            self._upstreams.popitem()[1].abort()


class _ContainerExchange:
    """One request and its answer; gets the calls of the upstream."""

    def __init__(
        self, upstreams: Upstreams, header_lines: bytes, body: Input, spool: Spool
    ) -> None:
        self._upstreams = upstreams
        self._header_lines = header_lines
        self._body = body
        self._spool = spool
        self._upstream: Upstream | None = None
        self._changed = asyncio.Event()
        """something below has changed"""
        self._is_refused = False
        self._is_full = False
        """the container does not take more of the body"""
        self._status = 0
        self._headers: Headers = []
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_whole = False
        self._is_broken = False

    async def run(self) -> ContainerReply:
        """Raises AsyncFailure, NotStarted, InstanceLost or InputBroken."""
        upstream = self._upstreams.take(self)
        if upstream is not None:
            self.connected(upstream)
        while self._upstream is None:
            if self._is_refused:
                raise NotStarted("The container cannot be reached.")
            await self._change()
        sending = asyncio.ensure_future(self._send_rest())
        try:
            return await self._receive(sending)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def release(self) -> None:
        """Leaves nothing behind, whatever has happened."""
        if self._upstream is None:
            self._upstreams.forget(self)
        elif not (self._is_whole or self._is_broken):
            self._upstream.abandon()

    async def _send_rest(self) -> None:
        """Sends what is not in memory."""
        upstream, body = self._upstream, self._body
        if upstream is None or body.whole is not None or not body.size:
            return
        try:
            async for piece in body.chunks():
                upstream.write(piece)
                while self._is_full:
                    await self._change()
        finally:
            self._changed.set()

    async def _receive(self, sending: "asyncio.Future[None]") -> ContainerReply:
        upstream = self._upstream
        assert upstream is not None
        while not (self._is_whole and not self._pieces):
            if self._pieces:
                piece = self._pieces.popleft()
                await self._spool.write(piece)
                self._held_bytes -= len(piece)
                if self._held_bytes <= HELD_BYTES // 2:
                    upstream.resume()
            elif self._is_broken:
                raise self._broken(upstream)
            elif sending.done() and (error := sending.exception()) is not None:
                raise InputBroken(str(error)) from error
            else:
                await self._change()
        if self._status == 503 and self._field(NOT_STARTED) is not None:
            raise NotStarted("The container takes no requests now.")
        await self._spool.end()
        return ContainerReply(self._status, self._field(b"content-type"), self._spool)

    def _broken(self, upstream: Upstream) -> Exception:
        if self._body.broken is not None:
            return InputBroken(str(self._body.broken))
        if upstream.not_begun:
            return NotStarted("The container ended before it began the request.")
        if upstream.fault is not None:
            return unreadable_answer(upstream.fault)
        return InstanceLost("The connection was lost before the answer was whole.")

    def _field(self, field_name: bytes) -> str | None:
        for name, value in self._headers:
            if name.lower() == field_name:
                return value.decode("latin-1")
        return None

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # Called by the upstreams

    def connected(self, upstream: Upstream) -> None:
        self._upstream = upstream
        body = self._body
        first = [body.whole] if body.whole and body.size else []
        upstream.send(self, INVOCATIONS, self._header_lines, first, body.size)
        self._changed.set()

    def refused(self) -> None:
        self._is_refused = True
        self._changed.set()

    # Called by the upstream

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status, self._headers = status, headers

    def answer_continues(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES and self._upstream is not None:
            self._upstream.pause()
        self._changed.set()

    def answer_ends(self) -> None:
        self._is_whole = True
        self._is_full = False
        self._changed.set()

    def answer_breaks(self) -> None:
        self._is_broken = True
        self._is_full = False
        self._changed.set()

    def upstream_full(self) -> None:
        self._is_full = True

    def upstream_drained(self) -> None:
        self._is_full = False
        self._changed.set()


def _header_lines(request: AsyncRequest, body: Input) -> bytes:
    """Uses the object's content type by default: AWS's SDK uploads with one and invokes without.

    Raises AsyncFailure for a value that a header cannot have.
    """
    fields = {
        "Content-Type": request.content_type or body.content_type,
        "Accept": request.accept,
        "X-Amzn-SageMaker-Custom-Attributes": request.custom_attributes,
        "X-Amzn-SageMaker-Inference-Id": request.inference_id,
    }
    for name, value in fields.items():
        if value is not None and (forbidden := _FORBIDDEN.search(value)):
            raise not_sendable(f"Forbidden character {forbidden[0]!r} in the value of {name}.")
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return "".join(lines).encode()
