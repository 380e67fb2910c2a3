"""The runner's process: control speaks on one pipe, and hears on the other."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sagehen.base.clock import SYSTEM, Clock
from sagehen.frame.container_relay import RelayNodes
from sagehen.frame.relay_connector import RelayConnector
from sagehen.frame.s3_client import S3Client
from sagehen.services.sagemaker.transform.runner.pipe import (
    MessageWriter,
    decode_line,
    read_lines,
    read_spec,
)
from sagehen.services.sagemaker.transform.runner.runner import Runner
from sagehen.services.sagemaker.transform.runner_messages import RunnerEnded, Stop
from sagehen.wire.signatures.signing import Signer

__all__ = ["run_job"]

log = logging.getLogger(__name__)

CLOSE_IDLE_SECONDS = 0.5
ABORT_SECONDS = 10.0
"""for the uploads of a job that is stopped"""


async def run_job(input_descriptor: int, output_descriptor: int) -> None:
    """Runs the job that the first line describes, until it has ended, is stopped, or nobody speaks
    any more."""
    writer = await MessageWriter.open(output_descriptor)
    async with aclosing(read_lines(input_descriptor)) as lines:
        first = await anext(lines, b"")
        if not first:
            return
        spec = read_spec(first)
        access = spec.s3
        signer = Signer(access.access_key, access.secret_key, access.region)
        store = S3Client(access.address, signer, SYSTEM)
        nodes = _Nodes()
        runner = Runner(spec, store, SYSTEM, writer.tell, nodes.connector)
        store.on_wait(runner.note_wait)
        listening = asyncio.create_task(_listen(lines, runner, nodes))
        closing = asyncio.create_task(_close_idle(runner, store, SYSTEM))
        running = asyncio.create_task(runner.run())
        await asyncio.wait((listening, running), return_when=asyncio.FIRST_COMPLETED)
        ended: RunnerEnded | None = None
        if running.done():
            ended = running.result()
        elif not listening.result():
            return  # Control has ended: its successor starts another runner.
        else:
            await _stop(runner, running)
        for task in (listening, closing):
            task.cancel()
        await asyncio.gather(listening, closing, return_exceptions=True)
    if ended is not None:
        writer.tell(ended)
    await writer.close()


class _Nodes:
    """The cluster's other nodes, as control has told last."""

    def __init__(self) -> None:
        self._current: RelayNodes | None = None
        self.connector = RelayConnector(lambda: self._current)

    def update(self, nodes: RelayNodes | None) -> None:
        if nodes != self._current:
            self._current = nodes
            self.connector.cut_lost()


async def _listen(lines: AsyncGenerator[bytes], runner: Runner, nodes: _Nodes) -> bool:
    """Returns whether the job is to be stopped; else control has ended."""
    async for line in lines:
        message = decode_line(line)
        if isinstance(message, Stop):
            return True
        nodes.update(message.nodes)
        runner.instances.update(message.instances)
    return False


async def _stop(runner: Runner, running: asyncio.Task[RunnerEnded]) -> None:
    """Leaves no upload behind, if S3 answers."""
    running.cancel()
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await asyncio.gather(running, return_exceptions=True)
            await runner.outputs.abort_all()
    except TimeoutError:
        log.warning("Not all uploads of a stopped job could be aborted.")


async def _close_idle(runner: Runner, store: S3Client, clock: Clock) -> None:
    while True:
        await clock.sleep(CLOSE_IDLE_SECONDS)
        runner.instances.close_idle()
        store.close_idle()
