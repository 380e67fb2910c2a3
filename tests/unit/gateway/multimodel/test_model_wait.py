"""An invocation's wait for its model: when it goes on, looks elsewhere, or ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from sagehen.gateway.client.limits import Limit, no_hits
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.metrics.request_metrics import RequestMetrics
from sagehen.gateway.multimodel.model_leases import LeasedModel, ModelLoadFailure
from sagehen.gateway.multimodel.model_wait import MAX_LOADS, MAX_MISSES, ModelWait
from support.clock import HandClock

INSTANCE: Any = SimpleNamespace(model_holder_id="i-1")


class Models:
    def __init__(self) -> None:
        self.name: str | None = None
        self.loads: list[tuple[float, bool]] = []
        """time left, and whether memory was short"""
        self.cancelled = 0

    def find(self, instance_id: str, model: str) -> str | None:
        return self.name

    def load(self, instance_id: str, model: str, waiter: Any, seconds: float, short: bool) -> None:
        self.loads.append((seconds, short))

    def cancel(self, instance_id: str, model: str, waiter: Any) -> None:
        self.cancelled += 1

    def forget(self, instance_id: str, model: str) -> None:
        self.name = None


class Owner:
    """Notes what it is called with."""

    deadline = 60.0
    must_stay_on_instance = False

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def model_loading(self) -> None: ...

    def model_ready(self, model_name: str) -> None:
        self.calls.append(("ready", model_name))

    def fail_with_answer(self, status: int, body: bytes, whole: bool) -> None:
        self.calls.append(("refused by the model", status))

    def place_again(self) -> None:
        self.calls.append("place again")

    def refused(self) -> None:
        self.calls.append("elsewhere")

    def fail(self, error: Any) -> None:
        self.calls.append((error.code, error.message))


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.models = Models()
        self.owner = Owner()
        self.hits = no_hits()
        self.counters = VariantCounters(endpoint="price", variant="Main")
        context: Any = SimpleNamespace(
            models=self.models, monotonic=self.clock.monotonic, limit_hits=self.hits
        )
        self.metrics = RequestMetrics(self.clock.monotonic, None)
        route = SimpleNamespace(name="Main")
        variant = SimpleNamespace(route=route, counters=self.counters, instance_share=1.0)
        self.metrics.admit(SimpleNamespace(variant=variant))  # type: ignore[arg-type]
        self.wait = ModelWait(self.owner, "a.tar.gz", self.metrics, context)  # type: ignore[arg-type]

    @property
    def waits(self) -> tuple[int, int]:
        return self.counters.loading_waits, self.counters.loading_wait_us


@pytest.fixture
def world() -> World:
    return World()


def test_a_model_that_is_known_is_used_at_once(world):
    world.models.name = "m"
    world.wait.begin(INSTANCE)
    assert (world.owner.calls, world.models.loads, world.waits) == ([("ready", "m")], [], (0, 0))


def test_a_load_is_waited_for_and_counted(world):
    world.clock.seconds = 10.0
    world.wait.begin(INSTANCE)
    assert world.models.loads == [(50.0, False)]
    world.clock.seconds = 12.0
    world.wait.model_loaded(LeasedModel("m"))
    assert (world.owner.calls, world.waits) == ([("ready", "m")], (1, 2_000_000))
    world.metrics.count_look_up()
    assert (world.counters.cache_samples, world.counters.cache_hits) == (1, 0)


def test_what_another_gateway_loaded_is_a_hit_without_a_wait(world):
    world.wait.begin(INSTANCE)
    world.wait.model_loaded(LeasedModel("m", hit=True))
    world.metrics.count_look_up()
    assert (world.counters.cache_hits, world.waits) == (1, (0, 0))


@pytest.mark.parametrize(
    ("status", "calls"),
    [
        (400, [("ValidationError", "No.")]),
        (424, [("refused by the model", 500)]),
        (507, [("refused by the model", 507)]),
        (503, ["elsewhere"]),
        (429, ["place again"]),
    ],
)
def test_a_failed_load_is_counted_once_however_it_ends(world, status, calls):
    world.wait.begin(INSTANCE)
    world.clock.seconds = 1.0
    world.wait.model_failed(ModelLoadFailure(status, "No."))
    world.wait.release()
    assert (world.owner.calls, world.waits) == (calls, (1, 1_000_000))
    assert world.models.cancelled == 0
    assert world.wait.failure == ("No." if status == 503 else None)


@pytest.mark.parametrize("why", ["no time", "too many loads"])
def test_a_busy_agent_is_not_asked_for_ever(world, why):
    world.owner.must_stay_on_instance = True
    world.wait.begin(INSTANCE)
    if why == "no time":
        world.clock.seconds = 59.5
    for _ in range(1 if why == "no time" else MAX_LOADS):
        world.wait.model_failed(ModelLoadFailure(429, "Busy."))
    assert world.owner.calls == [("ModelNotReadyException", "Busy.")]
    assert world.hits[Limit.LOADING] == 1
    assert len(world.models.loads) == (1 if why == "no time" else MAX_LOADS)


@pytest.mark.parametrize("must_stay", [True, False])
def test_a_container_without_memory_for_its_model_is_told_so(world, must_stay):
    world.models.name = "m"
    world.owner.must_stay_on_instance = must_stay
    world.wait.begin(INSTANCE)
    world.wait.model_missing(507)
    if not must_stay:
        assert world.owner.calls[-1] == "place again"
        world.models.name = "m"
        world.wait.begin(INSTANCE)
    assert world.models.loads == [(60.0, True)]


def test_so_many_misses_are_tried_again_and_no_more(world):
    lost: Any = SimpleNamespace(status=404, is_by_model=False)
    assert not world.wait.is_miss(SimpleNamespace(status=500, is_by_model=False))
    assert not world.wait.is_miss(SimpleNamespace(status=404, is_by_model=True))
    for _ in range(MAX_MISSES):
        assert world.wait.is_miss(lost)
        world.wait.model_missing(404)
    assert not world.wait.is_miss(lost)


def test_a_wait_that_is_given_up_is_counted_and_the_load_goes_on(world):
    world.wait.begin(INSTANCE)
    world.clock.seconds = 3.0
    world.wait.release()
    assert (world.waits, world.models.cancelled) == ((1, 3_000_000), 1)
