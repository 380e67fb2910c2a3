"""Asks a container: the input there, the answer back; what can be broken off on the way."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sagehen.clock import Clock
from sagehen.deferred.dispatch.endings import Ending
from sagehen.deferred.dispatch.failures import input_missing
from sagehen.deferred.dispatch.inputs import Inputs
from sagehen.deferred.dispatch.invoke import Answer, Containers, NotStarted
from sagehen.deferred.dispatch.jobs import Job
from sagehen.deferred.dispatch.notices import MOST_BODY_BYTES, wants_body
from sagehen.deferred.dispatch.places import Place
from sagehen.deferred.dispatch.spool import Spool
from sagehen.domain.asynchronous import AsyncState, Outcome, QueuedRequest
from sagehen.objects.store import ObjectStore
from sagehen.patience import AWAY, Patience
from sagehen.threads import Threads

__all__ = ["MOST_LOGGED_BYTES", "Asker"]

MOST_LOGGED_BYTES = 2000
"""Of what a container answered with an error."""


@dataclass(frozen=True)
class Asker:
    """
    Args:
        patience: with the object store, while it is away.
        let_go: gives a job's slot back.
    """

    objects: ObjectStore
    inputs: Inputs
    containers: Containers
    threads: Threads
    patience: Patience
    clock: Clock
    most_response_bytes: int
    let_go: Callable[[Job], None]

    async def ask(self, job: Job) -> tuple[Answer, Ending]:
        """The container's answer, whatever it is, and what it took; the slot is free then.

        Raises:
            Failure: there is none to be had, or the job was broken off.
            NotStarted, InstanceLost, InputBroken: as `Containers.invoke`.
        """
        place = job.place
        if place is None:
            raise NotStarted("The instance that it was leased for is gone.")
        if job.broken_off is not None:
            raise job.broken_off
        asking = asyncio.ensure_future(self._ask(job, place))
        job.asking = asking
        try:
            return await asking
        except asyncio.CancelledError:
            if job.broken_off is not None and not _is_cancelled():
                raise job.broken_off from None
            raise
        finally:
            job.asking = None
            self.let_go(job)

    async def _ask(self, job: Job, place: Place) -> tuple[Answer, Ending]:
        request = job.queued.request
        try:
            body = await self.patience(lambda: self.inputs.open(job.queued, job.input))
        except AWAY as error:
            raise input_missing(request.input_location or "the queue", str(error)) from error
        try:
            began = self.clock.monotonic()
            answer = await self.containers.invoke(
                place.address, request, body, lambda: self.spool(job.queued)
            )
            place.answered()
            ending = Ending(
                Outcome(state=AsyncState.SUCCEEDED, status=answer.status),
                model_seconds=self.clock.monotonic() - began,
                download_seconds=body.seconds,
            )
            return answer, ending
        finally:
            body.close()

    def spool(self, queued: QueuedRequest) -> Spool:
        """An empty one, which keeps as much in memory as a notice or the log is to have."""
        wanted = wants_body(queued, success=True) or wants_body(queued, success=False)
        return Spool(
            self.objects.draft,
            self.threads,
            self.patience,
            self.most_response_bytes,
            MOST_BODY_BYTES if wanted else MOST_LOGGED_BYTES,
        )


def _is_cancelled() -> bool:
    """It is the whole attempt that is to end, not only the asking."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
