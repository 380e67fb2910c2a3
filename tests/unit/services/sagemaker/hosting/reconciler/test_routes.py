"""The route table: what is in it, and how it comes to be on disk."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from sagehen.frame.container_specs import ContainerReport, ContainerSpec, InstanceState
from sagehen.frame.routes import (
    DEFAULT_SLOTS,
    ContainerRoute,
    ExecutionMode,
    Route,
    RouteTable,
)
from sagehen.services.sagemaker.hosting.reconciler.columns import columns_of
from sagehen.services.sagemaker.hosting.reconciler.plan import DELETED_DRAIN_SECONDS
from sagehen.services.sagemaker.hosting.reconciler.routes import (
    Departures,
    RouteFile,
    build_routes,
    routed_ids,
)
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.fleet import NAME, deployment, endpoint, instance, report, serverless

IN_SERVICE, STARTING = InstanceState.IN_SERVICE, InstanceState.STARTING
D1, D2 = deployment("d1", 1), deployment("d2", 1)
SERVING = endpoint(EndpointStatus.IN_SERVICE, current=D1)
UPDATING = endpoint(EndpointStatus.UPDATING, current=D1, target=D2)


def routes(record=SERVING, *instances, reports=None, before=None) -> dict[str, Route]:
    return build_routes([record], {NAME: instances}, reports, before or {})


def test_an_endpoint_in_service_is_reached_at_its_instances() -> None:
    (variant,) = routes(SERVING, instance("i1", "d1", IN_SERVICE))[NAME].variants

    assert [one.address for one in variant.instances] == ["unix:/run/i1.sock"]
    assert (variant.name, variant.weight) == ("a", 1.0)


def test_a_shadow_is_routed_beside_the_variants_that_answer() -> None:
    shadowed = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1, shadow=1))
    serving = instance("i1", "d1", IN_SERVICE), instance("s1", "d1", IN_SERVICE, variant="s")
    said = {"s1": replace(report("s1", IN_SERVICE), slots=3)}

    table = routes(shadowed, *serving, reports=said | {"i1": report("i1", IN_SERVICE)})
    away = routes(shadowed, *serving, before=table)

    route = table[NAME]
    assert [one.name for one in route.variants] == ["a"]
    assert (route.shadow.name, route.shadow.weight) == ("s", 1.0)
    (shadow,) = route.shadow.instances
    assert (shadow.instance_id, shadow.slots, shadow.inflight_column) == ("s1", 3, 1)
    assert away == table
    assert msgspec.json.decode(msgspec.json.encode(table), type=dict[str, Route]) == table


@pytest.mark.parametrize(
    "record",
    [
        endpoint(EndpointStatus.CREATING, target=D1),
        endpoint(EndpointStatus.FAILED, target=D1),
        endpoint(EndpointStatus.DELETING, current=D1),
    ],
    ids=lambda record: record.status,
)
def test_what_does_not_serve_has_no_route(record) -> None:
    assert routes(record, instance("i1", "d1", IN_SERVICE)) == {}


def test_an_update_is_not_routed_before_it_is_done() -> None:
    found = routes(UPDATING, instance("i1", "d1", IN_SERVICE), instance("i2", "d2", IN_SERVICE))

    assert routed_ids(found) == {"i1"}


def test_what_is_on_its_way_out_is_not_routed() -> None:
    assert routed_ids(routes(SERVING, instance("i1", "d1", IN_SERVICE, stop_at=9.0))) == set()


def test_an_endpoint_without_instances_keeps_its_route() -> None:
    (variant,) = routes(SERVING, instance("i1"))[NAME].variants

    assert variant.instances == ()


@pytest.mark.parametrize(
    ("stored", "said", "routed"),
    [
        (IN_SERVICE, None, True),
        (IN_SERVICE, {}, False),
        (IN_SERVICE, {"i1": report("i1", STARTING)}, False),
        (STARTING, {"i1": report("i1", IN_SERVICE)}, True),
    ],
    ids=["agent away", "agent restarted", "instance restarts", "instance came up"],
)
def test_the_agents_word_counts_for_more_than_the_record(stored, said, routed) -> None:
    found = routes(SERVING, instance("i1", "d1", stored), reports=said)

    assert bool(routed_ids(found)) == routed


def test_calls_that_wait_learn_why_an_instance_did_not_start() -> None:
    record = endpoint(EndpointStatus.IN_SERVICE, current=serverless())
    failed = replace(instance("i1", "d1", InstanceState.FAILED), failure_reason="No memory.")
    for instances, expected in (((), None), ((instance("i1"),), None), ((failed,), "No memory.")):
        (variant,) = routes(record, *instances)[NAME].variants
        assert variant.on_demand.start_failure == expected


def test_callers_learn_why_no_instance_serves() -> None:
    reason = "CapacityError: … (ml.m5.large needs 2 vCPUs, which no node has free now)"
    waiting = replace(report("i1", STARTING), failure_reason=reason)
    serving = report("i2", IN_SERVICE)
    rows = instance("i1", "d1"), instance("i2", "d1", IN_SERVICE)

    (alone,) = routes(SERVING, rows[0], reports={"i1": waiting})[NAME].variants
    (beside,) = routes(SERVING, *rows, reports={"i1": waiting, "i2": serving})[NAME].variants

    assert (alone.instances, alone.not_serving) == ((), reason)
    assert (len(beside.instances), beside.not_serving) == (1, "")


def test_an_instance_keeps_its_column_while_it_is_routed() -> None:
    i1, i2, i3 = (instance(one, "d1", IN_SERVICE) for one in ("i1", "i2", "i3"))
    first = routes(SERVING, i1, i2)
    second = routes(SERVING, i2, before=first)
    third = routes(SERVING, i1, i2, i3, before=second)

    assert columns_of(first) == {"i1": 0, "i2": 1}
    assert columns_of(second) == {"i2": 1}
    assert columns_of(third) == {"i1": 0, "i2": 1, "i3": 2}


def test_slots_are_what_the_agent_says_and_stay_while_it_is_away() -> None:
    running = instance("i1", "d1", IN_SERVICE)
    said = replace(report("i1", IN_SERVICE), slots=3)
    heard = routes(SERVING, running, reports={"i1": said})
    away = routes(SERVING, running, before=heard)
    unsaid = routes(SERVING, running, reports={"i1": report("i1", IN_SERVICE)}, before=away)

    assert [slots_of(one) for one in (heard, away, unsaid)] == [3, 3, DEFAULT_SLOTS]


def test_runs_are_what_the_agent_says_and_stay_while_it_is_away() -> None:
    running = instance("i1", "d1", IN_SERVICE)
    said = replace(report("i1", IN_SERVICE), run_id="first")
    heard = routes(SERVING, running, reports={"i1": said})
    away = routes(SERVING, running, before=heard)
    again = routes(SERVING, running, reports={"i1": replace(said, run_id="second")}, before=away)

    runs = [one[NAME].variants[0].instances[0].run_id for one in (heard, away, again)]
    assert runs == ["first", "first", "second"]


SEVERAL = (
    ContainerSpec(hostname="clean", image="python"),
    ContainerSpec(hostname="predict", image="python", multi_model=True),
)


def with_several(mode=ExecutionMode.SERIAL):
    """An endpoint whose instances have two containers, one of them, and what is said of it."""
    (variant,) = D1.variants
    several = replace(variant, containers=SEVERAL, mode=mode)
    record = endpoint(EndpointStatus.IN_SERVICE, current=replace(D1, variants=(several,)))
    running = instance("i1", "d1", IN_SERVICE)
    running = replace(running, spec=replace(running.spec, containers=SEVERAL))
    containers = (
        ContainerReport(address="unix:/run/i1.sock", slots=3),
        ContainerReport(address="unix:/run/i1-2.sock"),
    )
    return record, running, replace(report("i1", IN_SERVICE), slots=3, containers=containers)


def test_a_pipeline_has_the_slots_of_its_narrowest_container() -> None:
    record, running, said = with_several()
    (variant,) = routes(record, running, reports={"i1": said})[NAME].variants

    (routed,) = variant.instances
    assert variant.containers == (ContainerRoute("clean"), ContainerRoute("predict", True))
    assert (variant.mode, variant.multi_model) == (ExecutionMode.SERIAL, True)
    assert [one.address for one in routed.containers] == [
        "unix:/run/i1.sock",
        "unix:/run/i1-2.sock",
    ]
    assert (routed.address, routed.slots, routed.inflight_column) == ("unix:/run/i1.sock", 3, 0)


def test_containers_that_are_invoked_directly_have_slots_and_columns_of_their_own() -> None:
    record, running, said = with_several(ExecutionMode.DIRECT)
    table = routes(record, running, reports={"i1": said})

    (routed,) = table[NAME].variants[0].instances
    assert [(one.slots, one.inflight_column) for one in routed.containers] == [
        (3, 0),
        (DEFAULT_SLOTS, 1),
    ]
    assert columns_of(table) == {"i1/clean": 0, "i1/predict": 1}


@pytest.mark.parametrize("mode", ExecutionMode)
def test_several_containers_stay_as_they_are_while_the_agent_is_away(mode) -> None:
    record, running, said = with_several(mode)
    heard = routes(record, running, reports={"i1": said})

    assert routes(record, running, before=heard) == heard
    assert msgspec.json.decode(msgspec.json.encode(heard), type=dict[str, Route]) == heard


def test_several_containers_of_which_too_little_is_known_are_not_routed() -> None:
    record, running, said = with_several()
    elsewhere = replace(running, address="unix:/run/other.sock")
    heard = routes(record, running, reports={"i1": said})

    assert routed_ids(routes(record, running)) == set()
    assert routed_ids(routes(record, elsewhere, before=heard)) == set()
    assert (
        routed_ids(routes(record, running, reports={"i1": replace(said, containers=())})) == set()
    )


def slots_of(table: dict[str, Route]) -> int:
    return table[NAME].variants[0].instances[0].slots


def test_publishing_replaces_the_file_only_where_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    file = RouteFile(path)
    table = routes(SERVING, instance("i1", "d1", IN_SERVICE))

    assert file.publish(table)
    written = path.stat()
    assert not file.publish(table)

    assert path.stat().st_ino == written.st_ino
    assert msgspec.json.decode(path.read_bytes(), type=RouteTable).routes == table
    assert list(tmp_path.iterdir()) == [path]


def test_the_version_grows_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    RouteFile(path).publish(routes(SERVING, instance("i1", "d1", IN_SERVICE)))

    again = RouteFile(path)
    assert not again.publish(routes(SERVING, instance("i1", "d1", IN_SERVICE)))
    assert again.publish({})

    assert msgspec.json.decode(path.read_bytes(), type=RouteTable).version == 2


def test_who_takes_over_goes_on_from_the_last_leaders_table(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    file = RouteFile(path)
    file.publish({})
    table = routes(SERVING, instance("i1", "d1", IN_SERVICE))
    RouteFile(path).publish(table)

    file.read_again()

    assert file.routes == table
    file.publish({})
    assert msgspec.json.decode(path.read_bytes(), type=RouteTable).version == 3


def test_no_routes_are_published_too(tmp_path: Path) -> None:
    assert RouteFile(tmp_path / "routes.json").publish({})


@pytest.mark.parametrize("rubbish", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_broken_file_is_replaced(tmp_path: Path, rubbish: bytes) -> None:
    path = tmp_path / "routes.json"
    path.write_bytes(rubbish)

    RouteFile(path).publish({})

    assert msgspec.json.decode(path.read_bytes(), type=RouteTable).routes == {}


def test_what_left_the_routes_is_let_go_of_before_it_is_stopped() -> None:
    departures = Departures()
    departures.note(routes(SERVING, instance("i1", "d1", IN_SERVICE)), {}, now=10.0)
    free_at = 10.0 + DELETED_DRAIN_SECONDS

    assert departures.settle_at("i1", 10.0) == free_at
    assert departures.settle_at("i1", free_at) is None
    assert departures.settle_at("i1", 5.0) is None  # the clock was set back
    assert departures.settle_at("i2", 10.0) is None


def test_what_came_back_has_not_left() -> None:
    departures = Departures()
    table = routes(SERVING, instance("i1", "d1", IN_SERVICE))
    departures.note(table, {}, now=10.0)
    departures.note({}, table, now=10.1)

    assert departures.settle_at("i1", 10.1) is None
