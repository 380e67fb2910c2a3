"""Makes the instances match the endpoints' rows, for as long as it runs.

wake (api's hint · agent's report · time) → hold the lease → pass: rows, then routes → ask the agent
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from sagehen.clock import Clock
from sagehen.domain.containers import InstanceReport, InstanceSpec, InstanceState
from sagehen.errors import SagehenError, Unavailable
from sagehen.home import Home
from sagehen.reconcile.endpoints import Asks, EndpointPass, Lease, LeaseLost
from sagehen.reconcile.plan import Reports
from sagehen.reconcile.retries import backoff_seconds
from sagehen.reconcile.routes import RouteFile
from sagehen.reconcile.watch import Agent, AgentWatch
from sagehen.store.database import Database
from sagehen.wake import Wake

__all__ = ["LEASE_NAME", "EndpointLoop", "new_instance_id"]

log = logging.getLogger(__name__)
T = TypeVar("T")

LEASE_NAME = "endpoints"
LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5
LONGEST_REST_SECONDS = 1.0
FIRST_ERROR_SECONDS = 0.1
LONGEST_ERROR_SECONDS = 10.0
LONGEST_REASON = 1024
"""Of a FailureReason, as in SageMaker's model."""


def new_instance_id(source: random.Random) -> str:
    """An id such as EC2 gives: `i-` and 17 hexadecimal digits."""
    return f"i-{source.getrandbits(68):017x}"


class EndpointLoop:
    """The one loop that changes endpoints' instances and writes the route table."""

    def __init__(
        self,
        database: Database,
        agent: Agent,
        home: Home,
        clock: Clock,
        holder: str,
        source: random.Random | None = None,
        busy: Callable[[], frozenset[str]] = frozenset,
        on_routes: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            holder: who holds the lease. The same name after a restart takes over at once, another
                one when the lease has run out: name the home and its machine, not the process.
            source: where instance ids come from; the system's randomness where None.
            busy: the ids of instances that are not stopped before they have done what they work
                on, unless their endpoint goes. They must be done at some time.
            on_routes: called when the route table is another; from any thread.
        """
        chosen = source or random.SystemRandom()
        self._database = database
        self._agent = agent
        self._clock = clock
        self._lease = Lease(name=LEASE_NAME, holder=holder, ttl_seconds=LEASE_SECONDS)
        self._busy = busy
        self._pass = EndpointPass(
            database,
            RouteFile(home.routes),
            self._lease,
            lambda: new_instance_id(chosen),
            on_routes,
        )
        self._wake = Wake()
        self._watch = AgentWatch(agent, clock, self._wake.set)
        self._renewed: float | None = None
        """Monotonic; None while another holds the lease, or nobody."""
        self._waits = False
        self._errors = 0
        self._refused: dict[str, InstanceReport] = {}
        """Instances that the agent would not take, by id."""

    def hint(self) -> None:
        """Rows have changed: look now. May be called from any thread, at any time."""
        self._wake.hint()

    async def run(self) -> None:
        """Reconcile until cancelled; then let go of the lease."""
        self._wake.begin()
        watching = asyncio.create_task(self._watch.run())
        try:
            while True:
                await self._rest(await self._turn_or_back_off())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if self._renewed is not None:
                # Where that fails it runs out by itself.
                with contextlib.suppress(SQLAlchemyError):
                    await _in_thread(self._let_go)

    async def _turn_or_back_off(self) -> float:
        """Take a turn; however it ends, the seconds until the next if nothing happens."""
        try:
            wait = await self.turn()
        except LeaseLost:
            self._renewed = None
            return LONGEST_REST_SECONDS
        except Exception as error:
            self._errors += 1
            wait = backoff_seconds(self._errors - 1, FIRST_ERROR_SECONDS, LONGEST_ERROR_SECONDS)
            about = {"action": "reconcile_failed", "wait_seconds": wait}
            # What is expected to happen now and then needs no traceback.
            trace = not isinstance(error, (SagehenError, OSError))
            said = "Reconciling failed and is tried again: %s"
            log.error(said, error, exc_info=trace, extra=about)
            # Not cut short by a hint: what fails at once would be tried without end.
            await self._clock.sleep(wait)
            return 0
        self._errors = 0
        return wait

    async def turn(self) -> float:
        """Bring everything one step on; returns the seconds until the next turn is due.

        Raises:
            LeaseLost: another control took over in between.
        """
        self._wake.clear()
        if not await self._hold_lease():
            return LONGEST_REST_SECONDS
        reports, busy = self._reports(), self._busy()
        asks = await _in_thread(lambda: self._pass.run(reports, self._clock.now(), busy))
        await self._ask(asks)
        if asks.wake_at is None:
            return LONGEST_REST_SECONDS
        return min(LONGEST_REST_SECONDS, max(0.0, asks.wake_at - self._clock.now()))

    async def _hold_lease(self) -> bool:
        now = self._clock.monotonic()
        if self._renewed is not None and now - self._renewed < RENEW_SECONDS:
            return True
        held = await _in_thread(self._acquire)
        if not held and not self._waits:
            log.info("Another control reconciles; this one waits.", extra={"action": "stand_by"})
        self._waits = not held
        self._renewed = now if held else None
        return held

    def _acquire(self) -> bool:
        with self._database.write() as connection:
            return self._lease.acquire(connection, self._clock.now())

    def _let_go(self) -> None:
        with self._database.write() as connection:
            self._lease.release(connection)

    async def _ask(self, asks: Asks) -> None:
        """Ask the agent for what is missing. What does not get through is asked for again."""
        try:
            for spec in asks.start:
                await self._start(spec)
            for instance_id in asks.stop:
                await self._agent.delete_instance(instance_id)
                if self._refused.pop(instance_id, None):
                    self._wake.set()  # the agent has nothing to report of it
        except Unavailable as error:
            about = {"action": "ask_agent", "reason": str(error)}
            log.warning("The agent did not take what it was asked.", extra=about)

    async def _start(self, spec: InstanceSpec) -> None:
        try:
            await self._agent.put_instance(spec)
            self._refused.pop(spec.instance_id, None)
        except Unavailable:
            raise
        except SagehenError as error:
            # As good as an instance that failed: otherwise it would be asked for without end.
            self._refused[spec.instance_id] = InstanceReport(
                instance_id=spec.instance_id,
                state=InstanceState.FAILED,
                failure_reason=str(error)[:LONGEST_REASON],
            )
            self._wake.set()

    def _reports(self) -> Reports | None:
        """What the agent says, and what it would not hear of."""
        said = self._watch.reports
        return said if said is None or not self._refused else {**self._refused, **said}

    async def _rest(self, seconds: float) -> None:
        """Until woken, at most `seconds`."""
        waits = [
            asyncio.ensure_future(self._wake.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; when cancelled, still wait for its end, which cannot be hurried.

    Otherwise it would go on behind the back of whoever closes the database next.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
