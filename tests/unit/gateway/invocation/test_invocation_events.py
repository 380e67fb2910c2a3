"""Invocations under events in any order: none leaves its table of phases, or anything behind."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.routes import InstanceRoute, VariantRoute
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.admission.errors import ErrorFactory
from sagehen.gateway.client.limits import InvocationLimits, no_hits
from sagehen.gateway.container.answer import KEPT_BYTES
from sagehen.gateway.invocation import invocation as invocation_module
from sagehen.gateway.invocation.context import ActiveRequests, BodyMemory, InvocationContext
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.gateway.invocation.phases import (
    CONNECTING,
    DONE,
    LOADING,
    LOST,
    PIPELINE,
    PLACING,
    RECEIVING,
    RELAYING,
    SENT,
    STARTING,
    Phase,
)
from sagehen.gateway.invocation.streamed import StreamedInvocation
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.multimodel.model_leases import LeasedModel, ModelLoadFailure
from sagehen.gateway.routing.endpoint import Endpoint, Variant
from sagehen.gateway.routing.inflight import ROW_BYTES, InflightTable
from sagehen.gateway.routing.instance import RoutedInstance, Stage
from sagehen.gateway.routing.slot_queue import SlotQueue
from sagehen.gateway.routing.starts import Starts
from sagehen.http1.exchange import Exchange
from support.clock import HandClock
from support.exchanges import make_exchange

WITH_SLOT = {LOADING, CONNECTING, PIPELINE, SENT, RELAYING, LOST}
LIMITS = InvocationLimits(
    invocations=3, seconds=60, stream_seconds=100, body_bytes=1000, stage_bytes=KEPT_BYTES
)
NOT_STARTED = [(b"X-Sagehen-Not-Started", b"1")]

Event = Callable[[], object]


class FakeUpstream:
    def __init__(self, pool: "FakePool") -> None:
        self.pool = pool
        self.receiver: Any = None
        self.status = 0
        self.not_begun = False

    def send(self, receiver: Any, *request: object) -> None:
        assert self.receiver is None
        self.receiver, self.status = receiver, 0

    def pause(self) -> None:
        assert self.receiver is not None, "the connection may be another request's"

    resume = pause

    def abandon(self) -> None:
        assert self not in self.pool.idle, "the connection may be another request's"
        self.receiver = None
        self.pool.open.discard(self)

    def events(self) -> Iterator[Event]:
        if self.receiver is None:
            return
        if not self.status:
            for status, fields in ((200, []), (404, []), (500, []), (507, []), (503, NOT_STARTED)):
                yield partial(self._answer, status, fields, 3)
            yield partial(self._answer, 200, [], KEPT_BYTES + 1)
            yield partial(self._break, not_begun=True)
        else:
            yield lambda: self.receiver.answer_continues(b"abc")
            yield lambda: self.receiver.answer_continues(bytes(KEPT_BYTES + 1))
            yield self._end
        yield self._break

    def _answer(self, status: int, fields: list[tuple[bytes, bytes]], length: int) -> None:
        self.status = status
        self.receiver.answer_begins(status, fields, length)

    def _end(self) -> None:
        receiver, self.receiver = self.receiver, None
        self.pool.idle.append(self)
        receiver.answer_ends()

    def _break(self, not_begun: bool = False) -> None:
        receiver, self.receiver = self.receiver, None
        self.not_begun = not_begun
        self.pool.open.discard(self)
        receiver.answer_breaks()


class FakePool:
    def __init__(self) -> None:
        self.idle: list[FakeUpstream] = []
        self.waiting: list[Any] = []
        self.open: set[FakeUpstream] = set()

    def take(self, waiter: Any) -> FakeUpstream | None:
        if self.idle:
            return self.idle.pop()
        self.waiting.append(waiter)
        return None

    def forget(self, waiter: Any) -> None:
        self.waiting.remove(waiter)

    def events(self) -> Iterator[Event]:
        if self.waiting:
            yield self._connect
            yield lambda: self.waiting.pop(0).refused()
        for upstream in list(self.open):
            yield from upstream.events()

    def _connect(self) -> None:
        upstream = FakeUpstream(self)
        self.open.add(upstream)
        self.waiting.pop(0).connected(upstream)


class FakeModels:
    """Two models of which nothing is known at first."""

    def __init__(self) -> None:
        self.names: set[tuple[str, str]] = set()
        self.loading: dict[tuple[str, str], list[Any]] = {}
        self.users = 0

    def find(self, instance_id: str, model: str) -> str | None:
        return "name" if (instance_id, model) in self.names else None

    def holds(self, instance_id: str, model: str) -> bool:
        return (instance_id, model) in self.names

    def begin(self, instance_id: str, model: str) -> None:
        self.users += 1

    def end(self, instance_id: str, model: str) -> None:
        self.users -= 1

    def load(self, instance_id: str, model: str, waiter: Any, seconds: float, short: bool) -> None:
        self.loading.setdefault((instance_id, model), []).append(waiter)

    def cancel(self, instance_id: str, model: str, waiter: Any) -> None:
        self.loading.get((instance_id, model), []).remove(waiter)

    def forget(self, instance_id: str, model: str) -> None:
        self.names.discard((instance_id, model))

    def events(self) -> Iterator[Event]:
        for key in list(self.loading):
            for hit in (True, False):
                yield partial(self._loaded, key, LeasedModel("name", hit=hit))
            for status in (400, 424, 429, 503, 507):
                yield partial(self._failed, key, ModelLoadFailure(status, "No."))

    def _loaded(self, key: tuple[str, str], model: LeasedModel) -> None:
        self.names.add(key)
        for waiter in self.loading.pop(key):
            waiter.model_loaded(model)

    def _failed(self, key: tuple[str, str], failure: ModelLoadFailure) -> None:
        for waiter in self.loading.pop(key):
            waiter.model_failed(failure)


class FakeChannel:
    date_line = b""
    draining = False

    def __init__(self) -> None:
        self.is_cut_off = False

    def write(self, data: Any) -> None: ...

    write_all = write

    def finished(self, exchange: Exchange) -> None:
        assert not exchange.done, "answered twice"
        exchange.done = True

    def abort(self) -> None:
        self.is_cut_off = True


class World:
    """Two instances with a slot each; with `on_demand` none at first, and calls start them."""

    def __init__(
        self,
        *,
        stages: int = 0,
        has_models: bool = False,
        model_stage: int = 0,
        on_demand: bool = False,
    ) -> None:
        self.clock = HandClock(1000.0)
        self.end_reason: str | None = None
        self.counters = Counters("1")
        counters = self.counters.variant("price", "Main")
        inflight = InflightTable(memoryview(bytearray(ROW_BYTES)).cast("q"), 0)
        self.pools = [FakePool() for _ in range(2 * max(1, stages))]
        self.instances = []
        for number in range(2):
            mine = self.pools[number::2]
            route = InstanceRoute(
                instance_id=f"i-{number}", address="unix:/x", slots=1, inflight_column=number
            )
            made: Any = tuple(
                Stage(f"c{at}", pool, has_models and at == model_stage, counters)
                for at, pool in enumerate(mine)
            )
            instance = RoutedInstance(route, self.clock, inflight, "", made if stages else ())
            instance.upstreams = mine[0]
            self.instances.append(instance)
        self.queue = SlotQueue(inflight)
        route = VariantRoute(name="Main", weight=1, instances=())
        variant = Variant(route, tuple(self.instances), counters, self.queue)
        self.queue.variant = variant
        self.on_demand = on_demand
        self.routes = [
            Variant(route, () if on_demand else tuple(self.instances), counters, self.queue),
            variant,
        ]
        """tables that may be read, without and with instances"""
        if on_demand:
            self.queue.starts = cast("Starts", SimpleNamespace(request=lambda queue: None))
            self.queue.variant = self.routes[0]
        self.model = "a.tar.gz" if has_models else None
        self.admitted = Admitted(Endpoint("price", (variant,)), variant, b"", self.model)
        self.models = FakeModels()
        self.context = self._context()
        self.requests: list[Invocation] = []

    def _context(self) -> InvocationContext:
        hits, admission = no_hits(), SimpleNamespace(admit=lambda *_: self.admitted)
        unused: Any = SimpleNamespace()
        fakes: Any = {"admission": admission, "stream_admission": admission, "models": self.models}
        return InvocationContext(
            **fakes,
            sessions=unused,
            shadows=unused,
            errors=ErrorFactory("0" * 12, "us-east-1"),
            active=ActiveRequests(LIMITS, hits, self.clock),
            body_memory=BodyMemory(10**6),
            limits=LIMITS,
            limit_hits=hits,
            access_log=None,
            monotonic=self.clock.monotonic,
            now=self.clock.now,
            end_reason=lambda _: self.end_reason,
            random=lambda: 0.0,
        )

    def events(self) -> list[Event]:
        found: list[Event] = [
            partial(self._pass, 30),
            partial(self._pass, 101),
            lambda: setattr(self, "end_reason", None if self.end_reason else "killed"),
            self.queue.wake,
        ]
        if len(self.unanswered) <= LIMITS.invocations:
            found += [partial(self._arrive, kind) for kind in (Invocation, StreamedInvocation)]
        if self.on_demand:
            found += [partial(self.queue.update, variant) for variant in self.routes]
        for pool in self.pools:
            found += pool.events()
        found += self.models.events()
        for request in self.unanswered:
            found += [request.client_full, request.client_drained, partial(self._go, request)]
        return found

    @property
    def unanswered(self) -> list[Invocation]:
        return [request for request in self.requests if not request._exchange.done]

    def _arrive(self, kind: type[Invocation]) -> None:
        exchange = make_exchange(FakeChannel(), b"id")
        request = kind(exchange, self.context)
        self.requests.append(request)
        for event in (request.begin, partial(request.body, b"1,2"), request.whole):
            if not exchange.done:
                exchange.is_whole = event is request.whole
                event()

    def _go(self, request: Invocation) -> None:
        request._exchange.done = True
        request.client_gone()

    def _pass(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.context.active.expire()

    def check(self) -> None:
        phases = [request.phase for request in self.requests]
        assert sum(each.outstanding for each in self.instances) == sum(
            phase in WITH_SLOT for phase in phases
        )
        assert self.queue.length == phases.count(PLACING) + phases.count(STARTING)
        assert len(self.context.active) == sum(phase not in (RECEIVING, DONE) for phase in phases)
        for request in self.requests:
            exchange = request._exchange
            cut_off = cast("FakeChannel", exchange.channel).is_cut_off
            assert (request.phase is DONE) == (exchange.done or cut_off)

    def leftovers(self) -> dict[str, int]:
        counters = self.admitted.variant.counters
        return {
            "slots": sum(each.outstanding for each in self.instances),
            "queued": self.queue.length + counters.queued.now,
            "active": len(self.context.active) + counters.in_flight.now,
            "bytes": self.context.body_memory.bytes,
            "waiting": sum(len(pool.waiting) for pool in self.pools),
            "connections": sum(
                upstream.receiver is not None for pool in self.pools for upstream in pool.open
            ),
            "models": self.models.users + sum(map(len, self.models.loading.values())),
        }


async def play(world: World, choices: list[int]) -> set[Phase]:
    """Each choice is an event among those that can happen then."""
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    seen = {RECEIVING}
    for choice in choices:
        events = world.events()
        events[choice % len(events)]()
        seen |= {request.phase for request in world.requests}
        for _ in range(3):
            await asyncio.sleep(0)
        seen |= {request.phase for request in world.requests}
        world.check()
    for request in world.unanswered:
        world._go(request)
    for _ in range(3):
        await asyncio.sleep(0)
    assert failures == []
    assert not any(world.leftovers().values()), world.leftovers()
    return seen


KINDS = {
    "plain": {},
    "models": {"has_models": True},
    "pipeline": {"stages": 3},
    "pipeline, models first": {"stages": 2, "has_models": True},
    "pipeline, models between": {"stages": 3, "has_models": True, "model_stage": 1},
    "on demand": {"on_demand": True},
    "on demand, models": {"on_demand": True, "has_models": True},
    "pipeline, models last": {"stages": 2, "has_models": True, "model_stage": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@mock.patch.object(invocation_module, "END_REASON_POLL_SECONDS", 0)
@settings(deadline=None, max_examples=150)
@given(choices=st.lists(st.integers(0, 10**6), max_size=60))
def test_nothing_leaves_the_table_and_nothing_is_left(kind, choices):
    asyncio.run(play(World(**KINDS[kind]), choices))
