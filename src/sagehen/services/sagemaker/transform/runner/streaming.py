"""Streams whole objects through containers, with MaxPayloadInMB 0: in chunks both ways, of any
size."""

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass

from sagehen.base.errors import SagehenError
from sagehen.http1.call import connection_of_one_call
from sagehen.http1.client import ClientConnection
from sagehen.http1.fields import Headers
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS, Connector
from sagehen.services.sagemaker.transform.records.batches import Batch, RecordsError
from sagehen.services.sagemaker.transform.runner.attempts import (
    MAX_REASON_CHARACTERS,
    Retries,
)
from sagehen.services.sagemaker.transform.runner.batch_results import FailedRecord
from sagehen.services.sagemaker.transform.runner.errors import BatchError, ObjectError
from sagehen.services.sagemaker.transform.runner.instances import Instance
from sagehen.services.sagemaker.transform.runner.invocation import (
    NOT_STARTED,
    Answer,
    InstanceLost,
    NotStarted,
    TimedOut,
)
from sagehen.services.sagemaker.transform.runner.listing import InputObject
from sagehen.services.sagemaker.transform.runner.object_transform import (
    ObjectResult,
    Shared,
    read_pieces,
    write_errors,
)
from sagehen.services.sagemaker.transform.runner.outputs import Output
from sagehen.services.sagemaker.transform.runner.reading import ObjectReader

__all__ = ["Streams", "stream_object"]

NO_PIPELINES = (
    "MaxPayloadInMB 0 streams whole objects through one container, and this model is a pipeline of "
    "several. Set MaxPayloadInMB to at most 100."
)
TOO_LARGE = (
    "The container takes no body of this size. Let the job send parts of the object (SplitType, "
    "and MaxPayloadInMB above 0), or raise the container's limit by the model's variables."
)
HELD_BYTES = 2**20
"""of an answer in memory, before the container has to wait for S3"""


@dataclass(frozen=True)
class Streams:
    """The parts that all streamed objects share; `Shared` has those of objects that are cut.

    A stream goes over HTTP/1.1 of its own, also to our model servers: over a link, a request says
    its length first.
    """

    retries: Retries
    ends_with_newline: bool
    """AssembleWith is Line"""
    connector: Connector


async def stream_object(item: InputObject, shared: Shared, streams: Streams) -> ObjectResult:
    """Raises ObjectError, JobError or Unavailable; then there is no output."""
    if item.problem is not None:
        raise ObjectError("ClientError", item.problem)
    reader = ObjectReader(shared.store, item)

    async def ask(instance: Instance) -> Answer:
        nonlocal reader
        if len(instance.stages) > 1:
            raise ObjectError("ClientError", NO_PIPELINES)
        reader = ObjectReader(shared.store, item)
        return await _Attempt(reader, item, shared, streams).run(instance.address.address)

    failed = 0
    try:
        await streams.retries.attempt(ask)
    except BatchError as caught:
        error = _explained(caught)
        search = shared.batches.search
        if search is None or search.is_hopeless(Batch(b"", 1, 0)):
            raise error from caught
        search.found += 1
        await write_errors(shared, item, (FailedRecord(0, error),))
        failed = 1
    size = reader.size or 0
    if item.size is None:
        shared.reports.sized(size)
    shared.reports.answered(1, 0)
    return ObjectResult(size, 1, failed)


def _explained(error: BatchError) -> BatchError:
    """A stream says no length first, so that the container finds too late that it is too long."""
    if error.status != 413:
        return error
    return BatchError(
        error.error, f"{error}\n{TOO_LARGE}", error.status, f"{error.reason} {TOO_LARGE}"
    )


class _Attempt:
    """One request with an object, and its answer as an output."""

    def __init__(
        self, reader: ObjectReader, item: InputObject, shared: Shared, streams: Streams
    ) -> None:
        self._reader = reader
        self._item = item
        self._shared = shared
        self._streams = streams

    async def run(self, address: str) -> Answer:
        """Returns the answer, whose body is in the output after a success.

        Raises NotStarted, InstanceLost, TimedOut or ObjectError.
        """
        exchange = _Exchange()
        invoker = self._streams.retries.invoker
        output = self._shared.outputs.open(self._item.output, self._shared.output_type)
        is_whole = False
        try:
            async with asyncio.timeout(invoker.timeout_seconds):
                await exchange.connect(address, invoker.lines, self._streams)
                answer = await self._exchange(exchange, output)
            if answer.is_success:
                await output.finish()
                is_whole = True
        except TimeoutError as error:
            raise TimedOut(f"No answer came within {invoker.timeout_seconds:g} s.") from error
        except RecordsError as error:
            raise ObjectError("ClientError", str(error)) from error
        finally:
            exchange.release()
            if not is_whole:
                await output.abort()
        return answer

    async def _exchange(self, exchange: "_Exchange", output: Output) -> Answer:
        sending = asyncio.create_task(self._send(exchange))
        try:
            answer = await exchange.receive(sending, output)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if answer.is_success and self._streams.ends_with_newline and not exchange.ended_line:
            await output.write(b"\n")
        return answer

    async def _send(self, exchange: "_Exchange") -> None:
        pieces = read_pieces(self._reader, self._shared.gunzips, self._shared.large_reads)
        async with aclosing(pieces):
            async for piece in pieces:
                if piece:
                    await exchange.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await exchange.write(b"0\r\n\r\n")


class _Exchange:
    """Gets the calls of the connection."""

    def __init__(self) -> None:
        self._connection: ClientConnection | None = None
        self._changed = asyncio.Event()
        self._is_full = False
        self._status = 0
        self._is_not_started = False
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_whole = False
        self._is_broken = False
        self.ended_line = False

    async def connect(self, address: str, lines: bytes, streams: Streams) -> None:
        """Raises NotStarted."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                connection = await streams.connector(
                    address, connection_of_one_call, streams.retries.clock
                )
        except OSError as error:  # includes TimeoutError
            raise NotStarted("The container cannot be reached.") from error
        self._connection = connection
        connection.begin(self)
        connection.write(
            b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n%b\r\n" % lines
        )

    async def write(self, data: bytes) -> None:
        connection = self._connection
        if connection is None or self._is_whole or self._is_broken:
            return
        connection.write(data)
        while self._is_full and not (self._is_whole or self._is_broken):
            await self._change()

    async def receive(self, sending: "asyncio.Task[None]", output: Output) -> Answer:
        """Writes a successful answer into `output`.

        Raises NotStarted, InstanceLost, and what `sending` or `output` raise.
        """
        sending.add_done_callback(lambda _: self._changed.set())
        beginning = b""
        while not (self._is_whole and not self._pieces):
            if self._pieces:
                piece = self._pieces.popleft()
                if 200 <= self._status < 300:
                    await output.write(piece)
                    self.ended_line = piece.endswith(b"\n")
                elif len(beginning) < MAX_REASON_CHARACTERS:
                    beginning += piece
                self._held_bytes -= len(piece)
                if self._held_bytes <= HELD_BYTES // 2 and self._connection is not None:
                    self._connection.resume()
            elif self._is_broken:
                raise self._lost()
            elif sending.done() and (error := sending.exception()) is not None:
                raise error
            else:
                await self._change()
        if self._status == 503 and self._is_not_started:
            raise NotStarted("The container takes no requests now.")
        return Answer(self._status, beginning)

    def release(self) -> None:
        if self._connection is not None and not self._is_whole:
            self._connection.abandon()

    def _lost(self) -> SagehenError:
        connection = self._connection
        if connection is not None and connection.not_begun:
            return NotStarted("The container ended before it began the request.")
        if connection is not None and connection.fault is not None:
            return InstanceLost(f"The answer cannot be read: {connection.fault}.")
        return InstanceLost("The connection was lost before the answer was whole.")

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # Called by the connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        self._is_not_started = any(name.lower() == NOT_STARTED for name, _ in headers)

    def answer_continues(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES and self._connection is not None:
            self._connection.pause()
        self._changed.set()

    def answer_ends(self) -> None:
        self._is_whole = True
        self._changed.set()

    def answer_breaks(self) -> None:
        self._is_broken = True
        self._changed.set()

    def upstream_full(self) -> None:
        self._is_full = True

    def upstream_drained(self) -> None:
        self._is_full = False
        self._changed.set()
