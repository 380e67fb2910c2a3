"""A gateway at work: the public port, and what runs beside it."""

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial

from sagehen.clock import Clock
from sagehen.errors import Unavailable
from sagehen.gateway.counters import Counters
from sagehen.gateway.duties import Duties, Duty, keep_doing
from sagehen.gateway.invoker import Invoker
from sagehen.gateway.local_call import call
from sagehen.gateway.pool import Pool
from sagehen.gateway.routes import Routes
from sagehen.gateway.server import Server

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

ROUTES_SECONDS = 0.05
EXPIRE_SECONDS = 0.1
DIGEST_SECONDS = 0.1
"""How often times are made into sketches: seldom would be a long piece of work at once."""
ACCESS_LOG_SECONDS = 0.2
IDLE_CONNECTIONS_SECONDS = 0.25
SWEEP_SECONDS = 1.0
TELL_SECONDS = 1.0
"""Between two reports of counters to control, and of models in use to the agents."""
UNCHANGED_SECONDS = 5.0
"""Between two reports that say the same. Control takes a gateway that is silent for 10 s for one
that is no more, and a control that was started anew hears nothing before."""
TELL_TIMEOUT_SECONDS = 5.0
SESSIONS_SECONDS = 60.0
"""Between two removals of sessions that have expired."""
DRAIN_SECONDS = 30.0
DRAIN_POLL_SECONDS = 0.02
BACKLOG = 4096
COUNTERS_PATH = "/_sagehen/internal/gateway"
GC_THRESHOLD = 50_000
"""Objects made beyond those freed, after which the collector looks at them."""


class Gateway:
    """Serves what it knows of the routes; needs nobody but the instances to do so."""

    def __init__(
        self,
        server: Server,
        invoker: Invoker,
        routes: Routes,
        counters: Counters,
        control: Pool,
        agent: Pool,
        clock: Clock,
    ) -> None:
        self._server = server
        self._invoker = invoker
        self._routes = routes
        self._known_version = 0
        self._counters = counters
        self._control = control
        self._agent = agent
        self._clock = clock
        self._told = b""
        """The report that control got last."""
        self._told_at = 0.0
        self._duties = Duties(
            clock,
            [
                Duty(ROUTES_SECONDS, self._follow_routes),
                Duty(EXPIRE_SECONDS, invoker.live.expire),
                Duty(EXPIRE_SECONDS, invoker.shadows.expire),
                Duty(DIGEST_SECONDS, counters.digest),
                Duty(IDLE_CONNECTIONS_SECONDS, self._close_idle),
                Duty(SWEEP_SECONDS, server.sweep),
            ],
            lambda: bool(len(invoker.live) or len(invoker.shadows)),
        )
        invoker.live.on_first = self._duties.stir

    async def serve(self, listener: socket.socket) -> None:
        """Answer on a bound socket until SIGTERM or SIGINT; then finish what was accepted."""
        _open_more_files()
        # What was made so far lives as long as the process: the collector need not look at it.
        gc.collect()
        gc.freeze()
        # Neither requests nor connections leave cycles, so there is next to nothing to find.
        gc.set_threshold(GC_THRESHOLD)
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.set)
        async with self.running(listener):
            await ending.wait()

    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        """Answer on a bound socket while the block runs; then finish what was accepted.

        Several processes may be given the same socket, or each one of its own with SO_REUSEPORT.
        """
        self._follow_routes()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._server.make_connection, sock=listener, backlog=BACKLOG
        )
        duties = [loop.create_task(work) for work in self._beside()]
        try:
            yield
        finally:
            server.close()
            await self._drain()
            for task in duties:
                task.cancel()
            await asyncio.gather(*duties, return_exceptions=True)
            await self._tell_counters()
            if self._invoker.access_log is not None:
                await self._invoker.access_log.close()
            await self._invoker.models.stop()
            for pool in self._pools():
                pool.abort()

    async def _drain(self) -> None:
        """Wait for the answers that are due, but not for ever."""
        self._server.drain()
        end = self._clock.monotonic() + DRAIN_SECONDS
        while self._server.connections and self._clock.monotonic() < end:
            self._server.sweep()
            await self._clock.sleep(DRAIN_POLL_SECONDS)
        self._invoker.live.shut_down()
        self._server.abort()

    def _beside(self) -> list[Coroutine[None, None, None]]:
        """What runs beside the answering, until it is cancelled."""
        invoker = self._invoker
        slow: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (SESSIONS_SECONDS, partial(asyncio.to_thread, invoker.sessions.sweep)),
            (TELL_SECONDS, self._tell_counters),
            (TELL_SECONDS, partial(invoker.models.tell_use, TELL_TIMEOUT_SECONDS)),
        ]
        if invoker.access_log is not None:
            slow.append((ACCESS_LOG_SECONDS, invoker.access_log.flush))
        return [self._duties.run(), *(keep_doing(self._clock, *duty) for duty in slow)]

    def _follow_routes(self) -> None:
        self._routes.refresh()
        if self._routes.version != self._known_version:
            self._known_version = self._routes.version
            self._invoker.models.keep_only(
                {one.holder: one.run_id for one in self._routes.instances()}
            )

    def _close_idle(self) -> None:
        now = self._clock.monotonic()
        for pool in self._pools():
            pool.close_idle(now)

    def _pools(self) -> list[Pool]:
        return [self._control, self._agent, *self._routes.pools()]

    async def _tell_counters(self) -> None:
        report, now = self._counters.report(), self._clock.monotonic()
        if report == self._told and now - self._told_at < UNCHANGED_SECONDS:
            return
        try:
            await call(self._control, "POST", COUNTERS_PATH, report, TELL_TIMEOUT_SECONDS)
        except Unavailable as error:
            self._told = b""
            log.debug("Control was not told the counters: %s", error)
        else:
            self._told, self._told_at = report, now


def _open_more_files() -> None:
    """The soft limit is low for the sake of programs that use select(); this is not one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
