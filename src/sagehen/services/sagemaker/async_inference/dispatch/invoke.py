"""Sends requests to containers and reads their answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.retry import AWAY, RetryPolicy
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.async_inference.dispatch.claims import LeasedRequest
from sagehen.services.sagemaker.async_inference.dispatch.completion import AsyncEnding
from sagehen.services.sagemaker.async_inference.dispatch.containers import (
    ContainerReply,
    Containers,
    NotStarted,
)
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    input_missing,
)
from sagehen.services.sagemaker.async_inference.dispatch.inputs import Inputs
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer
from sagehen.services.sagemaker.async_inference.dispatch.notices import (
    MAX_BODY_BYTES,
    wants_body,
)
from sagehen.services.sagemaker.async_inference.dispatch.outputs import Spool
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)

__all__ = ["MAX_LOGGED_BYTES", "ContainerInvoker"]

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
