"""The gateway process: client connections, and periodic work beside them."""

import asyncio
import gc
import logging
import random
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.gateway.client.connection import Connection
from sagehen.gateway.client.limits import RESERVE, ClientLimits, Limit, LimitHits
from sagehen.gateway.invocation.context import InvocationContext
from sagehen.gateway.leader_proxy import Leader
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.peers.cluster import LOOK_SECONDS, Cluster
from sagehen.gateway.periodic_tasks import PeriodicTask, PeriodicTasks, repeat
from sagehen.gateway.routing.routes import Routes
from sagehen.gateway.routing.starts import Starts
from sagehen.http1.call import call
from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.fields import date_line
from sagehen.http1.limits import ConnectionLimit
from sagehen.http1.pool import Pool
from sagehen.link.upstream import Upstreams

__all__ = ["Dispatch", "Gateway", "GatewayServer"]

log = logging.getLogger(__name__)

MIN_IDLE_SECONDS = 1.0
"""before a connection may be closed for a new one: its client may be about to send"""

Dispatch = Callable[[Exchange], Handler]


class GatewayServer:
    """State shared by client connections."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        rng: random.Random,
        limits: ClientLimits,
        limit_hits: LimitHits,
    ) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.limit_hits = limit_hits
        self.draining = False
        self.now = clock.monotonic()
        """as of the last sweep: exact enough for time-outs, and free"""
        self.date_line = date_line(clock.now())
        self.connections: set[Connection] = set()
        self._idle: dict[Connection, float] = {}
        """idle connections and since when, the longest idle first"""
        self._reserve: dict[Connection, None] = {}
        """connections over the limit, oldest first"""
        self._clock = clock
        self._requests = 0
        self._id_prefix = _id_prefix(rng)

    def make_connection(self) -> Connection:
        return Connection(self)

    def admit(self, connection: Connection) -> bool:
        """Returns whether a new connection may be kept.

        At the limit, the longest idle one is closed; without any, the new one joins the
        reserve, for health checks only.
        """
        if len(self.connections) - len(self._reserve) >= self.limits.connections:
            connection_to_close = self._longest_idle()
            if connection_to_close is not None:
                self.limit_hits[Limit.EVICTED] += 1
                self._idle.pop(connection_to_close)
                connection_to_close.evict()
            else:
                self.limit_hits[Limit.CONNECTIONS] += 1
                if not self._admit_to_reserve(connection):
                    return False
        self.connections.add(connection)
        return True

    def _longest_idle(self) -> Connection | None:
        now = self._clock.monotonic()
        for connection, since in self._idle.items():
            if now - since < MIN_IDLE_SECONDS:
                break
            if not connection.is_sending or now - since >= self.limits.stall_seconds:
                return connection
        return None

    def _admit_to_reserve(self, connection: Connection) -> bool:
        if len(self._reserve) >= RESERVE:
            oldest = next((each for each in self._reserve if not each.is_answering), None)
            if oldest is None:
                return False
            self._reserve.pop(oldest)
            oldest.turn_away()
        connection.health_only = True
        self._reserve[connection] = None
        return True

    def went_idle(self, connection: Connection) -> None:
        if not connection.health_only:
            self._idle[connection] = self.now

    def went_busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._idle.pop(connection, None)
        self._reserve.pop(connection, None)

    def limit_hit(self, limit: ConnectionLimit) -> None:
        self.limit_hits[Limit(limit.value)] += 1

    def next_request_id(self) -> bytes:
        """Returns a UUID: a random prefix and a counter."""
        self._requests += 1
        return b"%b%012x" % (self._id_prefix, self._requests)

    def sweep(self) -> None:
        """Cuts off overdue clients; call about once a second."""
        self.now = self._clock.monotonic()
        self.date_line = date_line(self._clock.now())
        for connection in list(self.connections):
            connection.cut_off_if_overdue(self.now)

    def drain(self) -> None:
        """Closes each connection after its next answer, and idle connections at a later sweep."""
        self.draining = True

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()


def _id_prefix(rng: random.Random) -> bytes:
    bits = rng.getrandbits
    return b"%08x-%04x-4%03x-a%03x-" % (bits(32), bits(16), bits(12), bits(12))


ROUTES_SECONDS = 0.05
EXPIRE_SECONDS = 0.1
DIGEST_SECONDS = 0.1
"""short, as digesting many at once would block the loop"""
ACCESS_LOG_SECONDS = 0.2
IDLE_CONNECTIONS_SECONDS = 0.25
SWEEP_SECONDS = 1.0
REPORT_SECONDS = 1.0
"""between reports to control and agents"""
UNCHANGED_REPORT_SECONDS = 5.0
"""between equal reports: control takes a gateway that is silent for 10 s for dead, and a restarted
control has no report yet"""
REPORT_TIMEOUT_SECONDS = 5.0
SESSIONS_SECONDS = 60.0
"""between removals of expired sessions"""
DRAIN_SECONDS = 30.0
DRAIN_POLL_SECONDS = 0.02
BACKLOG = 4096
COUNTERS_PATH = "/_sagehen/internal/gateway"
GC_THRESHOLD = 50_000


class Gateway:
    """Serves invocations by the last known routes, even without control."""

    def __init__(
        self,
        server: GatewayServer,
        context: InvocationContext,
        routes: Routes,
        counters: Counters,
        control: Pool,
        agent: Pool,
        clock: Clock,
        starts: Starts,
        leader: Leader,
        cluster: Cluster | None = None,
    ) -> None:
        self._server = server
        self._leader = leader
        self._cluster = cluster
        """where this machine is a node of one"""
        self._context = context
        self._starts = starts
        self._routes = routes
        self._known_version = 0
        self._counters = counters
        self._control = control
        self._agent = agent
        self._clock = clock
        self._last_report = b""
        """last received by control"""
        self._last_report_at = 0.0
        self._tasks = PeriodicTasks(
            clock,
            [
                PeriodicTask(ROUTES_SECONDS, self._follow_routes),
                PeriodicTask(EXPIRE_SECONDS, context.active.expire),
                PeriodicTask(EXPIRE_SECONDS, context.shadows.expire),
                PeriodicTask(DIGEST_SECONDS, counters.digest),
                PeriodicTask(IDLE_CONNECTIONS_SECONDS, self._close_idle),
                PeriodicTask(SWEEP_SECONDS, server.sweep),
            ],
            lambda: bool(len(context.active) or len(context.shadows)),
        )
        context.active.on_first = self._tasks.wake

    async def serve(
        self, listener: socket.socket, peer_listener: socket.socket | None = None
    ) -> None:
        """Serves until SIGTERM or SIGINT, then finishes accepted requests.

        `peer_listener`: for the gateways of other nodes.
        """
        _open_more_files()
        # Objects made so far live as long as the process: no need to scan them.
        gc.collect()
        gc.freeze()
        # Requests and connections leave no cycles.
        gc.set_threshold(GC_THRESHOLD)
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.set)
        async with self.running(listener, peer_listener):
            await ending.wait()

    @asynccontextmanager
    async def running(
        self, listener: socket.socket, peer_listener: socket.socket | None = None
    ) -> AsyncIterator[None]:
        """Serves while the block runs, then finishes accepted requests.

        Processes may share a socket, or each have its own with SO_REUSEPORT.
        """
        self._follow_routes()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._server.make_connection, sock=listener, backlog=BACKLOG
        )
        if self._cluster is not None and peer_listener is not None:
            await self._cluster.listen(peer_listener)
        tasks = [loop.create_task(work) for work in self._background_work()]
        try:
            yield
        finally:
            server.close()
            if self._cluster is not None:
                self._cluster.stop_listening()
            await self._drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._report_counters()
            if self._context.access_log is not None:
                await self._context.access_log.close()
            await self._context.models.stop()
            await self._starts.stop()
            for pool in self._pools():
                pool.abort()
            if self._cluster is not None:
                self._cluster.abort()

    async def _drain(self) -> None:
        self._server.drain()
        end = self._clock.monotonic() + DRAIN_SECONDS
        while self._is_serving and self._clock.monotonic() < end:
            self._server.sweep()
            await self._clock.sleep(DRAIN_POLL_SECONDS)
        self._context.active.shut_down()
        self._server.abort()

    @property
    def _is_serving(self) -> bool:
        """Whether clients, or other nodes, wait for answers."""
        cluster = self._cluster
        return bool(self._server.connections) or (cluster is not None and cluster.is_serving)

    def _background_work(self) -> list[Coroutine[None, None, None]]:
        context = self._context
        slow: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (SESSIONS_SECONDS, partial(asyncio.to_thread, context.sessions.sweep)),
            (REPORT_SECONDS, self._report_counters),
            (REPORT_SECONDS, partial(context.models.report_use, REPORT_TIMEOUT_SECONDS)),
        ]
        if self._cluster is not None:
            slow.append((LOOK_SECONDS, self._cluster.look))
        if context.access_log is not None:
            slow.append((ACCESS_LOG_SECONDS, context.access_log.flush))
        return [self._tasks.run(), *(repeat(self._clock, *task) for task in slow)]

    def _follow_routes(self) -> None:
        self._routes.refresh()
        if self._routes.version != self._known_version:
            self._known_version = self._routes.version
            self._context.models.keep_only(
                {each.model_holder_id: each.run_id for each in self._routes.instances()}
            )

    def _close_idle(self) -> None:
        now = self._clock.monotonic()
        for pool in self._pools():
            pool.close_idle(now)

    def _pools(self) -> list[Pool | Upstreams]:
        leader = [] if self._leader.pool is None else [self._leader.pool]
        return [self._control, self._agent, *leader, *self._routes.upstreams()]

    async def _report_counters(self) -> None:
        report, now = self._counters.report(), self._clock.monotonic()
        if report == self._last_report and now - self._last_report_at < UNCHANGED_REPORT_SECONDS:
            return
        try:
            answer = await call(
                self._control, "POST", COUNTERS_PATH, report, REPORT_TIMEOUT_SECONDS
            )
            if answer.status != HTTPStatus.NO_CONTENT:
                raise Unavailable(f"Control answered {answer.status}: {answer.text[:200]}")
        except Unavailable as error:
            self._last_report = b""
            log.debug("The counters could not be reported to control: %s", error)
        else:
            self._last_report, self._last_report_at = report, now
            self._counters.was_reported = True


def _open_more_files() -> None:
    """The soft limit is low for programs that use select(); this one does not."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
