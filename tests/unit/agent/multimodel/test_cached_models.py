"""Which models stay loaded: leases, order of use and memory."""

from pathlib import Path

import pytest

from sagehen.agent.artifacts.artifacts import Artifact
from sagehen.agent.multimodel.cached_models import (
    LEASE_SECONDS,
    CachedModel,
    CachedModels,
    ModelTallies,
)
from support.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(100.0)


@pytest.fixture
def models(clock: HandClock) -> CachedModels:
    models = CachedModels(30, clock)
    for name in "abc":
        models.add(CachedModel(name, Artifact(name, Path(name), 1), cost_bytes=10, leases=0))
    return models


def idle(models: CachedModels, keep_name: str = "") -> str:
    return "".join(model.name for model in models.idle(keep_name))


def test_the_least_recently_used_are_unloaded_first(models: CachedModels) -> None:
    assert idle(models) == "abc"
    models.touch(["a", "unknown"])
    assert idle(models) == "bca"
    assert idle(models, keep_name="b") == "ca"


def test_memory_is_charged_until_a_model_is_removed(models: CachedModels) -> None:
    assert (models.charged_bytes, models.fits(0), models.fits(1)) == (30, True, False)
    models.remove("b")
    models.reserved_bytes = 5
    assert (models.fits(5), models.fits(6), len(models)) == (True, False, 2)
    assert [model.name for model in models.clear()] == ["a", "c"]
    assert models.charged_bytes == 0


def test_a_leased_model_stays_until_all_leases_are_released(models: CachedModels) -> None:
    model = models.find("a")
    assert model is not None
    models.lease(model)
    models.lease(model)
    assert idle(models) == "bc"
    assert models.release({"a": 1, "unknown": 1}) == []
    assert models.release({"a": 5}) == [model]
    assert models.release({"a": 1}) == [], "no lease is left"
    assert idle(models) == "bca"


def test_a_lease_of_a_gateway_that_has_ended_expires(
    models: CachedModels, clock: HandClock
) -> None:
    model = models.find("a")
    assert model is not None
    models.lease(model)
    clock.seconds += LEASE_SECONDS
    assert idle(models) == "bc"
    clock.seconds += 0.1
    assert idle(models) == "bca"


def test_the_metrics_are_counts_and_sums_in_microseconds() -> None:
    tallies = ModelTallies()
    tallies.loading.add(0.5)
    tallies.loading.add(0.25)
    values = tallies.values()
    assert (values["ModelLoadingTimeCount"], values["ModelLoadingTimeSum"]) == (2, 750_000)
    assert values["ModelUnloadingTimeCount"] == 0
