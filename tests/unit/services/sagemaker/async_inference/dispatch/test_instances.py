"""Instances and their slots, as the route table changes."""

from pathlib import Path

import msgspec
import pytest

from sagehen.frame.routes import (
    AsyncPlan,
    InstanceRoute,
    Route,
    RouteFileReader,
    RouteTable,
    VariantRoute,
)
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainers
from support.clock import HandClock


class Table:
    """A route table that a test rewrites."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = HandClock(100.0)
        self.draws = [0.0]
        reader = RouteFileReader(path, self.clock)
        self.containers = RoutedContainers(reader, self.clock, 4, lambda: self.draws[0], "n1")

    def write(self, *variants: VariantRoute, most: int | None = None) -> None:
        plan = AsyncPlan(output_path="s3://o", max_concurrency=most)
        route = Route(endpoint_name="End", variants=variants, asynchronous=plan)
        plain = Route(endpoint_name="Plain", variants=variants)
        table = RouteTable(routes={"End": route, "Plain": plain})
        beside = self.path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(table))
        beside.replace(self.path)
        self.containers.refresh()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "routes.json")


def instance(name: str, slots: int = 256, run: str = "1") -> InstanceRoute:
    return InstanceRoute(instance_id=name, address=f"unix:/{name}", slots=slots, run_id=run)


def variant(name: str, *instances: InstanceRoute, weight: float = 1) -> VariantRoute:
    return VariantRoute(name=name, weight=weight, instances=instances)


@pytest.mark.parametrize(
    ("most", "slots", "free"), [(None, 256, 4), (None, 2, 2), (9, 2, 9), (1, 256, 1)]
)
def test_as_many_at_once_as_the_config_says(table: Table, most, slots, free) -> None:
    table.write(variant("v", instance("i", slots)), most=most)
    assert table.containers.free("End") == free
    assert table.containers.endpoint_names == {"End"}
    assert table.containers.free("Plain") == 0


def test_instances_of_other_nodes_are_reached_through_them(table: Table) -> None:
    remote, own = (
        msgspec.structs.replace(instance(name), address=f"link:/{name}", node_id=node)
        for name, node in (("i-1", "n2"), ("i-2", "n1"))
    )
    table.write(variant("v", remote, own))
    assert table.containers.addresses == {"link:node:n2/i-1/0", "link:/i-2"}
    moved = msgspec.structs.replace(remote, node_id="n3")
    table.write(variant("v", moved, own))
    assert table.containers.addresses == {"link:node:n3/i-1/0", "link:/i-2"}


def test_weights_choose_the_variant(table: Table) -> None:
    table.write(
        variant("a", instance("1"), weight=1),
        variant("b", instance("2"), weight=3),
        variant("c", instance("3"), weight=0),
        most=1,
    )
    table.draws[0] = 0.3
    first = table.containers.acquire("End")
    assert first is not None
    assert first.variant_name == "b"
    # What is full is not waited for; what has no weight is not used for it.
    second = table.containers.acquire("End")
    assert second is not None
    assert second.variant_name == "a"
    assert table.containers.acquire("End") is None
    table.containers.release(first)
    assert table.containers.free("End") == 1


def test_what_left_the_table_is_busy_until_it_is_done(table: Table) -> None:
    table.write(variant("v", instance("old")))
    container = table.containers.acquire("End")
    assert container is not None
    table.write(variant("v", instance("new")))
    assert table.containers.busy == {"old"}
    assert table.containers.addresses == {"unix:/old", "unix:/new"}
    table.containers.release(container)
    assert table.containers.busy == frozenset()
    assert table.containers.addresses == {"unix:/new"}


def test_an_instance_that_starts_anew_has_all_its_slots(table: Table) -> None:
    table.write(variant("v", instance("i")), most=1)
    assert table.containers.acquire("End") is not None
    table.write(variant("v", instance("i")), most=1)
    assert table.containers.free("End") == 0
    table.write(variant("v", instance("i", run="2")), most=1)
    assert table.containers.free("End") == 1


def test_who_refuses_rests_for_longer_each_time(table: Table) -> None:
    table.write(variant("v", instance("i")))
    container = table.containers.acquire("End")
    assert container is not None
    rests = []
    for _ in range(8):
        container.refused(table.clock.monotonic())
        assert table.containers.free("End") == 0
        wake_at = table.containers.wake_at()
        assert wake_at is not None
        rests.append(wake_at - table.clock.monotonic())
        table.clock.seconds = wake_at
        assert table.containers.free("End") == 3
    assert rests == [0.25, 0.5, 1, 2, 4, 5, 5, 5]
    container.answered()
    container.refused(table.clock.monotonic())
    assert table.containers.wake_at() == table.clock.monotonic() + 0.25
