"""Which stores endpoints need, and what they do with those that there are."""

import pytest
from msgspec.structs import replace

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.offline_results.store import StoreInfo
from sagehen.services.sagemaker.hosting.reconciler.advance import advance
from sagehen.services.sagemaker.hosting.reconciler.routes import build_routes
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.services.sagemaker.offline_results.stores import (
    StoreStates,
    family_of,
    requested_stores,
)
from support.fleet import NAME, deployment, endpoint, instance
from support.offline_results import with_results

INFO = StoreInfo(fingerprint="f", keys=1, rows=1, built_at=5.0)
OLD = with_results(deployment("d1", 1))
NEW = with_results(deployment("d2", 1))
ONLY = with_results(deployment("d2", 1), only=True)
CREATING = endpoint(EndpointStatus.CREATING, target=NEW)
UPDATING = endpoint(EndpointStatus.UPDATING, current=OLD, target=NEW)
SERVES = [instance("i1", "d2", InstanceState.IN_SERVICE)]


def ready(*files: str, **failures: str) -> StoreStates:
    named = {name.replace("_", "."): reason for name, reason in failures.items()}
    return StoreStates(dict.fromkeys(files, INFO), named)


def files(*records) -> list[str]:
    return [request.file for request in requested_stores(records)]


def test_a_store_is_needed_for_each_variant_of_what_serves_or_comes_to() -> None:
    assert files(CREATING) == ["d2.a.0.db"]
    assert files(UPDATING) == ["d1.a.0.db", "d2.a.0.db"]
    two = endpoint(EndpointStatus.IN_SERVICE, current=with_results(deployment("d1", 1, 1)))
    assert files(two, replace(CREATING, name="Other")) == ["d1.a.0.db", "d1.b.0.db", "d2.a.0.db"]
    assert files(endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1))) == []


@pytest.mark.parametrize("status", [EndpointStatus.DELETING, EndpointStatus.FAILED])
def test_what_serves_no_more_needs_none(status: EndpointStatus) -> None:
    assert files(endpoint(status, current=OLD, target=NEW)) == []


def test_a_refresh_needs_another_store_of_the_same_family() -> None:
    refreshed = endpoint(
        EndpointStatus.IN_SERVICE, current=with_results(deployment("d1", 1), revision=12)
    )
    assert files(refreshed) == ["d1.a.12.db"]
    assert family_of("d1.a.12.db") == family_of("d1.a.0.db") == "d1.a"
    assert family_of("d1.b.0.db") != "d1.a"


@pytest.mark.parametrize("record", [CREATING, UPDATING])
def test_a_deployment_waits_for_its_stores(record) -> None:
    assert advance(record, SERVES, (), 9.0, ready("d1.a.0.db")) == record
    done = advance(record, SERVES, (), 9.0, ready("d2.a.0.db"))
    assert (done.status, done.current, done.target) == (EndpointStatus.IN_SERVICE, NEW, None)


@pytest.mark.parametrize("record", [CREATING, UPDATING])
def test_stores_alone_are_not_enough(record) -> None:
    assert advance(record, [], (), 9.0, ready("d2.a.0.db")) == record


def test_without_a_model_the_store_is_enough() -> None:
    creating = endpoint(EndpointStatus.CREATING, target=ONLY)
    assert advance(creating, [], (), 9.0) == creating
    done = advance(creating, [], (), 9.0, ready("d2.a.0.db"))
    assert done.status is EndpointStatus.IN_SERVICE


def test_a_store_that_cannot_be_built_fails_a_creation() -> None:
    failed = advance(CREATING, SERVES, (), 9.0, ready(d2_a_0_db="row 3 is broken."))
    assert (failed.status, failed.target) == (EndpointStatus.FAILED, NEW)
    assert failed.failure_reason == (
        "The offline results of variant a cannot be used: row 3 is broken."
    )


def test_an_update_whose_store_cannot_be_built_falls_back() -> None:
    failed = advance(UPDATING, SERVES, (), 9.0, ready("d1.a.0.db", d2_a_0_db="no."))
    assert (failed.status, failed.current, failed.target) == (EndpointStatus.IN_SERVICE, OLD, None)
    assert failed.failure_reason.endswith("no.")


def test_a_refresh_that_fails_leaves_a_change_of_counts_alone() -> None:
    current = with_results(deployment("d1", 1), revision=3)
    target = with_results(deployment("d1", 2), revision=3)
    updating = endpoint(EndpointStatus.UPDATING, current=current, target=target)
    serve = [instance(f"i{at}", "d1", InstanceState.IN_SERVICE) for at in range(2)]
    done = advance(updating, serve, (), 9.0, ready("d1.a.2.db", d1_a_3_db="broken"))
    assert (done.status, done.current, done.failure_reason) == (
        EndpointStatus.IN_SERVICE,
        target,
        None,
    )


@pytest.mark.parametrize(
    ("files", "routed"),
    [
        ((), None),
        (("d1.a.0.db",), "d1.a.0.db"),
        (("d1.a.0.db", "d1.a.2.db"), "d1.a.2.db"),
        (("d1.a.1.db", "d1.a.3.db", "d1.b.2.db"), "d1.a.1.db"),
    ],
)
def test_the_newest_store_of_a_variant_is_routed(files, routed) -> None:
    current = with_results(deployment("d1", 1), revision=2)
    record = endpoint(EndpointStatus.IN_SERVICE, current=current)
    (variant,) = build_routes([record], {}, {}, {}, ready(*files))[NAME].variants
    assert variant.instances == ()
    if routed is None:
        assert variant.offline_results is None
    else:
        assert variant.offline_results.file == routed
        assert variant.offline_results.results == current.variants[0].offline_results
