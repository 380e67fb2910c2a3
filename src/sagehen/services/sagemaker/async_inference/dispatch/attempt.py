"""One attempt at one request, from its lease to its end.

look for the output of an earlier attempt → ask the container → write the object → end
                                         ↘ a small object: written with the end, in one transaction
                                         ↘ the instance was lost: back into the queue
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import SagehenError
from sagehen.base.retry import AWAY, RetryPolicy
from sagehen.services.s3.storage.store import SmallObject
from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.dispatch.claims import LeasedRequest
from sagehen.services.sagemaker.async_inference.dispatch.completion import (
    AsyncEnding,
    EndedAttempt,
    Endings,
)
from sagehen.services.sagemaker.async_inference.dispatch.containers import (
    ContainerReply,
    InputBroken,
    InstanceLost,
    NotStarted,
)
from sagehen.services.sagemaker.async_inference.dispatch.data_log import RequestDataLog
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    AsyncFailure,
    answered_with_error,
    lost_too_often,
    not_stored,
)
from sagehen.services.sagemaker.async_inference.dispatch.invoke import (
    MAX_LOGGED_BYTES,
    ContainerInvoker,
)
from sagehen.services.sagemaker.async_inference.dispatch.outputs import OutputWriter, Spool
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["RequestAttempt"]

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class RequestAttempt:
    """Runs attempts at leased requests.

    Args:
        leads: False once another control may have taken the leases over.
    """

    database: Database
    writes: GroupCommit
    invoker: ContainerInvoker
    outputs: OutputWriter
    endings: Endings
    threads: Threads
    retry: RetryPolicy
    data_log: RequestDataLog
    clock: Clock
    max_redeliveries: int
    leads: Callable[[], bool] = lambda: True

    async def run(self, job: LeasedRequest) -> None:
        """Bring a request to its end, or back into the queue. If neither can be written, its lease
        runs out."""
        try:
            await self._run(job)
        except AsyncFailure as failure:
            await self._fail(job, failure)
        except NotStarted as error:
            self._rest(job, error)
            await self._give_back(job, lost=False)
        except (InstanceLost, InputBroken) as error:
            await self._requeue_lost(job, error)
        except AWAY as error:
            self._rest(job, error)
            await self._give_back(job, lost=False)

    async def _run(self, job: LeasedRequest) -> None:
        if await self._end_as_before(job):
            return
        if job.early_failure is not None:
            raise job.early_failure
        answer, ending = await self.invoker.invoke_leased(job)
        job.ends = True
        try:
            if answer.is_success:
                await self._succeed(job, answer, ending)
            else:
                failure = answered_with_error(answer.status, answer.spool.beginning)
                await self._fail(job, failure, ending, answer)
        finally:
            answer.spool.discard()

    async def _end_as_before(self, job: LeasedRequest) -> bool:
        """Use the output of an earlier attempt, so that no container is asked twice."""
        if job.queued.attempt == 1:
            return False
        stored = await self.retry(lambda: self.outputs.find(job.queued))
        if stored is None:
            return False
        await self._end(job, AsyncEnding(stored.outcome, stored.body))
        return True

    async def _succeed(
        self, job: LeasedRequest, answer: ContainerReply, ending: AsyncEnding
    ) -> None:
        location = job.queued.request.output.location
        ending.outcome = AsyncOutcome(
            state=AsyncState.SUCCEEDED,
            content_type=answer.content_type,
            location=location,
            status=answer.status,
        )
        ending.body = answer.spool.whole
        small = self.outputs.small(job.queued, ending.outcome, answer.spool)
        # Giving the request back would invoke its container again: store the answer as an object.
        with contextlib.suppress(*AWAY):
            if small is not None and await self._end(job, ending, small):
                return
        try:
            stored = await self._store(job, ending, answer.spool)
        except (SagehenError, *AWAY) as error:
            stored = await self._is_stored(job)
            if not stored:
                await self._fail(job, not_stored(location, str(error)), ending)
        if stored:
            await self._end(job, ending)

    async def _is_stored(self, job: LeasedRequest) -> bool:
        """Whether the answer is stored: a failed write may have stored it. Then there must be no
        failure object."""
        try:
            stored = await self.outputs.find(job.queued)
        except (SagehenError, *AWAY):
            return False
        return stored is not None and stored.outcome.state is AsyncState.SUCCEEDED

    async def _fail(
        self,
        job: LeasedRequest,
        failure: AsyncFailure,
        ending: AsyncEnding | None = None,
        answer: ContainerReply | None = None,
    ) -> None:
        job.ends = True
        output = job.queued.request.output
        outcome = AsyncOutcome(
            state=failure.state,
            failure_reason=failure.reason,
            content_type=answer.content_type if answer else PLAIN,
            location=output.failure_location,
            status=answer.status if answer else None,
        )
        ending = ending or AsyncEnding(outcome)
        ending.outcome = outcome
        ending.failed_by = (failure.metric,) if failure.metric else ()
        await self._log(job, failure, answer)
        spool = answer.spool if answer else await self._spool_text(job.queued, failure.text)
        ending.body = spool.whole
        if output.failure_location is None or await self._store_failure(job, ending, spool):
            await self._end(job, ending)

    async def _store_failure(self, job: LeasedRequest, ending: AsyncEnding, spool: Spool) -> bool:
        """Writes the failure object; if that fails, the request ends without it."""
        try:
            return await self._store(job, ending, spool)
        except (SagehenError, *AWAY) as error:
            log.error("A failure object cannot be written: %s", error, extra=_about(job))
            ending.outcome = msgspec.structs.replace(
                ending.outcome, location=None, content_type=None
            )
            ending.failed_by = (*ending.failed_by, "ResponseUploadFailures")
            return True

    async def _spool_text(self, queued: QueuedRequest, text: str) -> Spool:
        spool = self.invoker.spool(queued)
        await spool.write(text.encode())
        return spool

    async def _store(self, job: LeasedRequest, ending: AsyncEnding, spool: Spool) -> bool:
        """Writes the object; returns False if another worker has the request now."""
        if not await self._is_ours(job):
            log.warning("A request was leased by another meanwhile.", extra=_about(job))
            return False
        began = self.clock.monotonic()
        await self.retry(lambda: self.outputs.put(job.queued, ending.outcome, spool))
        ending.upload_seconds = self.clock.monotonic() - began
        return True

    async def _is_ours(self, job: LeasedRequest) -> bool:
        if self.leads() and self.clock.now() < job.lease_until:
            return True

        def read() -> bool:
            with self.database.read() as connection:
                now = async_requests.get(connection, job.queued.sequence)
            return now is not None and (now.state, now.attempt) == (
                AsyncState.LEASED,
                job.queued.attempt,
            )

        return await self.retry(lambda: self.threads.run(read))

    async def _end(
        self, job: LeasedRequest, ending: AsyncEnding, small: SmallObject | None = None
    ) -> bool:
        ending.variant_name = job.variant_name
        ended = await self.endings.end(job.queued, ending, small)
        if ended is EndedAttempt.NOT_STORED:
            return False
        if ended is EndedAttempt.TAKEN:
            log.warning("A request was ended by another meanwhile.", extra=_about(job))
            return True
        outcome = ending.outcome
        if outcome.state is not AsyncState.SUCCEEDED:
            about = _about(job) | {"state": outcome.state.value}
            log.info("A request failed: %s", outcome.failure_reason, extra=about)
        return True

    async def _requeue_lost(self, job: LeasedRequest, error: Exception) -> None:
        lost = job.queued.lost
        about = _about(job) | {"lost": lost + 1, "reason": str(error)}
        log.warning("An instance was lost while it worked on a request.", extra=about)
        if lost >= self.max_redeliveries:
            await self._fail(job, lost_too_often(job.queued.request.endpoint_name, lost + 1))
            return
        self._rest(job, error)
        await self._give_back(job, lost=True)

    async def _give_back(self, job: LeasedRequest, *, lost: bool) -> None:
        sequence, number = job.held
        await self.retry(
            lambda: self.writes.join(
                lambda connection: async_leases.give_back(connection, sequence, number, lost=lost)
            )
        )

    def _rest(self, job: LeasedRequest, error: Exception) -> None:
        """Let the instance rest before its next request."""
        if job.container is not None:
            job.container.refused(self.clock.monotonic())
        log.debug("A request goes back into the queue: %s", error, extra=_about(job))

    async def _log(
        self, job: LeasedRequest, failure: AsyncFailure, answer: ContainerReply | None
    ) -> None:
        container = job.container
        if container is None:
            return
        text = failure.text
        if answer is not None:
            side = "client" if 400 <= answer.status < 500 else "server"
            beginning = answer.spool.beginning[:MAX_LOGGED_BYTES].decode("utf-8", "replace")
            text = (
                f'Received {side} error ({answer.status}) from primary with message "{beginning}"'
            )
        inference_id = job.queued.request.inference_id
        await self.threads.run(lambda: self.data_log.write(container, inference_id, text))


def _about(job: LeasedRequest) -> dict[str, object]:
    request = job.queued.request
    return {
        "action": "async_request",
        "endpoint": request.endpoint_name,
        "inference_id": request.inference_id,
        "request_id": request.request_id,
        "attempt": job.queued.attempt,
    }
