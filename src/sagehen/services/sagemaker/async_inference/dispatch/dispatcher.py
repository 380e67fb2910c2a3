"""Leases requests from the queue while there are free slots, and runs an attempt for each.

wake (a request was queued · one ended · new routes · time) → lease as many requests as there are
free slots → a task for each → its end wakes again

An empty queue is not read again until something is committed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake
from sagehen.base.retry import AWAY
from sagehen.services.sagemaker.async_inference import lease_store as async_leases
from sagehen.services.sagemaker.async_inference.dispatch.attempt import RequestAttempt
from sagehen.services.sagemaker.async_inference.dispatch.claims import (
    LEASE_NAME,
    Claimed,
    Claims,
    LeasedRequest,
)
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    cancelled,
    deleted,
    early_failure,
)
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainers
from sagehen.state.commits import IdleCheck
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import Leadership
from sagehen.state.leases import LeaseLost

__all__ = ["AsyncDispatcher"]

log = logging.getLogger(__name__)

REQUEST_LEASE_SECONDS = 30.0
BEAT_SECONDS = 10.0
LONGEST_REST_SECONDS = 1.0
ERROR_REST_SECONDS = 1.0
STOP_SECONDS = 10.0
MAX_RECLAIMS = 10
RECLAIM_BATCH = 500


class AsyncDispatcher:
    """Dispatches requests; of all controls that share a state, only the lease's holder does.

    Args:
        max_in_flight: requests worked on at once.
    """

    def __init__(
        self,
        writes: GroupCommit,
        routed: RoutedContainers,
        make_work: Callable[[Callable[[LeasedRequest], None]], RequestAttempt],
        clock: Clock,
        leadership: Leadership,
        max_in_flight: int,
    ) -> None:
        self._writes = writes
        self._routed = routed
        self._work = make_work(self._release_slot)
        self._clock = clock
        self._worker = leadership.holder
        self._max_in_flight = max_in_flight
        self._jobs: dict[int, LeasedRequest] = {}
        """by sequence"""
        self._tasks: dict[LeasedRequest, asyncio.Task[None]] = {}
        self._wake = Wake()
        self._leasing = asyncio.Lock()
        """Held while leased rows are not in `_jobs` yet: they must not be taken for a lost
        worker's."""
        self._lease = leadership.lease(LEASE_NAME)
        self._idle = IdleCheck(writes.database.commits, clock)
        self._term: int | None = None
        """of the lease when the leases of other workers were last reclaimed"""
        self._turns = 0
        self.on_idle: Callable[[], None] = lambda: None
        leadership.on_change(self.hint)
        writes.database.commits.on_change(self.hint)

    @property
    def busy(self) -> frozenset[str]:
        return self._routed.busy

    def hint(self) -> None:
        """Look for work soon. May be called from any thread."""
        self._wake.hint()

    async def run(self) -> None:
        """Dispatch until cancelled; then give unfinished requests back."""
        self._wake.begin()
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                await self._wake.rest(await self._turn_or_wait())
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await self._stop()

    async def _turn_or_wait(self) -> float:
        try:
            if await self._is_idle():
                return LONGEST_REST_SECONDS
            return await self.turn()
        except LeaseLost:
            return 0
        except AWAY as error:
            log.error("The queue cannot be reached: %s", error, extra={"action": "dispatch"})
        except Exception:
            log.exception("Dispatching failed.", extra={"action": "dispatch"})
        await self._clock.sleep(ERROR_REST_SECONDS)
        return 0

    async def turn(self) -> float:
        """Lease what there is room for; returns the seconds until the next turn."""
        self._wake.clear()
        self._idle.begin()
        await self._follow_routes()
        async with self._leasing:
            if not await self._lease.hold():
                self._drop_jobs()
                return LONGEST_REST_SECONDS
            if self._term != self._lease.term:
                self._drop_jobs()
            claimed = await self._claim()
            self._term = self._lease.term
            self._break_off(claimed)
            self._take_on(claimed)
        if claimed.settled and not self._jobs:
            self._idle.end()
        return self._seconds_to_wait(claimed)

    async def _is_idle(self) -> bool:
        if self._wake.is_set or not self._idle.is_idle:
            return False
        await self._follow_routes()
        return await self._lease.hold()

    async def _follow_routes(self) -> None:
        if self._routed.refresh():
            await self._work.invoker.containers.keep(self._routed.addresses)

    async def _claim(self) -> Claimed:
        self._turns += 1
        now = self._clock.now()
        claims = Claims(
            free={name: self._routed.free(name) for name in self._routed.endpoint_names},
            capacity=max(0, self._max_in_flight - len(self._jobs)),
            first=self._turns,
            worker=self._worker,
            now=now,
            until=now + REQUEST_LEASE_SECONDS,
            read=self._work.invoker.inputs.read_small,
            fresh=self._term != self._lease.term,
            check=self._lease.check,
        )
        return await self._writes.join(claims)

    def _take_on(self, claimed: Claimed) -> None:
        for queued in (*claimed.to_end, *claimed.to_send):
            name = queued.request.endpoint_name
            until = claimed.at + REQUEST_LEASE_SECONDS - 1
            job = LeasedRequest(queued, until, claimed.inputs.get(queued.sequence))
            job.early_failure = early_failure(
                queued,
                abandoned_to=claimed.abandoned.get(name, 0),
                max_reclaims=MAX_RECLAIMS,
                now=claimed.at,
            )
            job.variant_name = self._routed.first_variant(name)
            if job.early_failure is None:
                job.container = self._routed.acquire(name)
                job.has_slot = job.container is not None
            if job.container is not None:
                job.variant_name = job.container.variant_name
            self._start(job)

    def _start(self, job: LeasedRequest) -> None:
        task = asyncio.create_task(self._work.run(job))
        self._jobs[job.queued.sequence] = job
        self._tasks[job] = task
        task.add_done_callback(lambda task: self._done(job, task))

    def _done(self, job: LeasedRequest, task: asyncio.Task[None]) -> None:
        self._release_slot(job)
        del self._tasks[job]
        if self._jobs.get(job.queued.sequence) is job:
            del self._jobs[job.queued.sequence]
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            about = {"action": "async_request", "request_id": job.queued.request.request_id}
            log.error("A request is left until its lease runs out.", exc_info=error, extra=about)

    def _release_slot(self, job: LeasedRequest) -> None:
        if not job.has_slot or job.container is None:
            return
        job.has_slot = False
        self._routed.release(job.container)
        self._wake.set()
        if not job.container.outstanding:
            self.on_idle()

    def _drop_jobs(self) -> None:
        """Stops work on requests that another worker has now, or is about to take."""
        for job, task in self._tasks.items():
            if not job.ends:
                task.cancel()

    def _break_off(self, claimed: Claimed) -> None:
        for sequence, attempt in claimed.cancelled:
            job = self._jobs.get(sequence)
            if job is not None and job.queued.attempt == attempt:
                job.break_off(cancelled())
        if any(claimed.abandoned.values()):
            for sequence, job in self._jobs.items():
                name = job.queued.request.endpoint_name
                if sequence <= claimed.abandoned.get(name, 0):
                    job.break_off(deleted(name))

    def _seconds_to_wait(self, claimed: Claimed) -> float:
        if claimed.more and len(self._jobs) < self._max_in_flight:
            return 0
        wake_at = self._routed.wake_at()
        if wake_at is None:
            return LONGEST_REST_SECONDS
        return min(LONGEST_REST_SECONDS, max(0.0, wake_at - self._clock.monotonic()))

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(BEAT_SECONDS)
            try:
                await self.beat()
            except AWAY as error:
                log.error("Leases cannot be renewed: %s", error, extra={"action": "dispatch"})
            except Exception:
                # Without renewal all requests here would be taken for lost.
                log.exception("Renewing leases failed.", extra={"action": "dispatch"})

    async def beat(self) -> None:
        async with self._leasing:
            held = [job.held for job in self._jobs.values()]
            renewal, until, reclaimed = await self._writes.join(
                partial(self._renew, held, self._lease.is_ours)
            )
        for sequence, attempt in held:
            job = self._jobs.get(sequence)
            if job is None or job.queued.attempt != attempt:
                continue
            if sequence in renewal.lost:
                self._lose(job)
            else:
                job.lease_until = until - 1
            if sequence in renewal.cancelled:
                job.break_off(cancelled())
        if reclaimed:
            self._wake.set()
            about = {"action": "reclaim", "requests": reclaimed}
            log.warning("Requests whose worker was lost are queued again.", extra=about)

    def _renew(
        self, held: Sequence[tuple[int, int]], reclaims: bool, connection: Connection
    ) -> tuple[async_leases.Renewal, float, int]:
        """Returns the renewal, its end, and how many leases of others were reclaimed.

        The time is read inside the transaction: a long wait for the disk must not make requests
        look lost. Runs in the thread that writes.
        """
        now = self._clock.now()
        until = now + REQUEST_LEASE_SECONDS
        renewal = async_leases.renew(connection, held, until)
        if not reclaims or self._term != self._lease.term:
            return renewal, until, 0
        return renewal, until, async_leases.reclaim(connection, now, RECLAIM_BATCH)

    def _lose(self, job: LeasedRequest) -> None:
        """Cancel the task the second time; the first time the request may just have ended."""
        if job.is_lost:
            self._tasks[job].cancel()
        job.is_lost = True

    async def _stop(self) -> None:
        """Finish requests that have their answer; give the others back."""
        held = [job.held for job in self._jobs.values() if not job.ends]
        for job, task in self._tasks.items():
            if not job.ends:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=STOP_SECONDS)
        # Requests still being written are not given back: another worker would ask again. Their
        # leases run out, or this worker's next process takes them over.
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        def give_all_back(connection: Connection) -> None:
            for sequence, attempt in held:
                async_leases.give_back(connection, sequence, attempt, lost=False)

        with contextlib.suppress(*AWAY):
            await self._writes.join(give_all_back)
        await self._lease.let_go()
        await self._work.invoker.containers.close()
        self._work.threads.close()
