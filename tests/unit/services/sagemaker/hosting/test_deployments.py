"""How many instances a machine has room for, when it is asked to be strict."""

import contextlib

import msgspec
import pytest

from sagehen.base.settings import Settings
from sagehen.frame.container_specs import ContainerSpec
from sagehen.services.sagemaker.hosting import deployments
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.deployments import (
    Machine,
    RunningCounts,
    check_capacity,
    count_instances,
    this_machine,
)
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)
from sagehen.wire.errors import AwsError

MACHINE = Machine(vcpus=8, memory_bytes=32 * 2**30, gpus=0)
STRICT = Settings(strict_capacity=True)


def endpoint(
    name: str, count: int, kind: str = "ml.m5.large", fractions: tuple[str, ...] = (), **fields
) -> EndpointRecord:
    containers = tuple(
        ContainerSpec(hostname="c", image="i", environment={"SAGEHEN_GPU_FRACTION": fraction})
        for fraction in fractions
    )
    variant = VariantPlan(
        name="v", instance_type=kind, instance_count=count, weight=1, containers=containers
    )
    deployment = Deployment(deployment_id=f"{name}-1", config_name="c", variants=(variant,))
    return EndpointRecord(
        **{
            "name": name,
            "arn": name,
            "created_at": 0,
            "modified_at": 0,
            "status": EndpointStatus.CREATING,
            "target": deployment,
            **fields,
        }
    )


def counts(records):
    return {record.name: count_instances(record) for record in records}


def allowed(before, after, settings=STRICT, machine=MACHINE) -> bool:
    try:
        check_capacity(counts(before), after, settings, machine)
    except AwsError:
        return False
    return True


def refused(before, after, settings=STRICT) -> str:
    with pytest.raises(AwsError) as caught:
        check_capacity(counts(before), after, settings, MACHINE)
    return caught.value.message


def test_vcpus_and_memory_are_shared_by_all():
    assert allowed([endpoint("a", 2)], endpoint("b", 2))
    said = refused([endpoint("a", 2)], endpoint("b", 3))
    assert "'ml.m5.large for endpoint usage' is 4 Instances" in said
    assert "utilization of 2 Instances and a request delta of 3 Instances" in said
    assert "8 vCPUs, 32.0 GiB of memory and 0 GPUs" in said
    assert "is 0 Instances" in refused([], endpoint("a", 1, "ml.r5.2xlarge"))


def test_a_shadow_takes_room_too():
    record = endpoint("a", 2)
    shadow = msgspec.structs.replace(record.target.variants[0], name="s", instance_count=3)
    target = msgspec.structs.replace(record.target, shadow=shadow)
    said = refused([], msgspec.structs.replace(record, target=target))
    assert "a request delta of 5 Instances" in said


def test_gpus_count():
    assert "is 0 Instances" in refused([], endpoint("a", 1, "ml.g4dn.xlarge"))


@pytest.mark.parametrize(
    ("before", "after", "fit"),
    [
        ([(1, ())], (1, ()), True),
        ([(1, ())], (2, ()), False),
        ([(1, ("0.5",))], (3, ("0.5",)), True),
        ([(1, ("0.5",))], (4, ("0.5",)), False),
        # An instance cannot have 0.4 of one GPU and 0.2 of another.
        ([(2, ("0.6",))], (1, ("0.6",)), False),
        ([(2, ("0.6",))], (2, ("0.4",)), True),
        # Small ones do not stand in the way of a whole GPU.
        ([(2, ("0.25",)), (2, ("0.25",))], (1, ()), True),
        ([(1, ("0.25", "0.25"))], (4, ("0.25", "0.25")), False),
        ([(1, ("0.5",)), (4, "cpu")], (3, ("0.5",)), True),
    ],
)
def test_fractions_of_gpus_are_added_up(before, after, fit):
    machine = msgspec.structs.replace(MACHINE, vcpus=64, memory_bytes=2**40, gpus=2)

    def of(name, count, fractions):
        if fractions == "cpu":
            return endpoint(name, count)
        return endpoint(name, count, "ml.g4dn.xlarge", fractions)

    running = [of(f"e{number}", *one) for number, one in enumerate(before)]
    assert allowed(running, of("new", *after), machine=machine) is fit


@pytest.mark.parametrize("status", [EndpointStatus.FAILED, EndpointStatus.DELETING])
def test_what_does_not_run_takes_no_room(status):
    assert allowed([endpoint("a", 4, status=status)], endpoint("b", 4))
    assert not allowed([endpoint("a", 4)], endpoint("b", 4))


def test_an_update_needs_room_for_old_and_new_together():
    before = endpoint("a", 2, target=None, current=endpoint("x", 2).target)
    assert allowed([before], endpoint("a", 2, current=before.current))
    assert not allowed([before], endpoint("a", 3, current=before.current))


def test_scaling_in_place_needs_room_for_what_is_added():
    before = endpoint("a", 3, target=None, current=endpoint("a", 3).target)
    assert allowed([before], endpoint("a", 4, current=before.current))
    assert not allowed([before], endpoint("a", 5, current=before.current))


def test_less_is_always_allowed():
    before = endpoint("a", 40, target=None, current=endpoint("a", 40).target)
    settings = Settings(strict_capacity=True, max_endpoint_instances=10)
    assert allowed([before], endpoint("a", 30, current=before.current), settings)
    assert not allowed([before], endpoint("a", 41, current=before.current), settings)


def test_this_machine_has_something():
    machine = this_machine(Settings())
    assert machine.vcpus >= 1
    assert machine.memory_bytes > 2**28


def test_gpus_that_are_left_to_other_programs_do_not_count(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    monkeypatch.setattr(deployments, "_GPUS", tmp_path)
    assert this_machine(Settings()).gpus == 4
    assert this_machine(Settings(gpu_devices="0,1")).gpus == 2


def test_counts_are_those_of_the_state_whatever_was_read_before(server):
    """Also of a transaction that was undone."""
    database = server.database
    running = RunningCounts.of(database)
    assert RunningCounts.of(database) is running
    seen = {}
    with database.write() as connection:
        endpoints.insert(connection, endpoint("One", 2))
        endpoints.insert(connection, endpoint("Two", 1))
        seen["first"] = running.read(connection)
    changed = endpoint("One", 5, modified_at=1)
    with contextlib.suppress(ZeroDivisionError), database.write() as connection:
        endpoints.update(connection, changed)
        seen["undone"] = running.read(connection)
        raise ZeroDivisionError
    with database.write() as connection:
        seen["again"] = running.read(connection)
        endpoints.update(connection, changed)
        endpoints.delete(connection, "Two")
        seen["later"] = running.read(connection)
    totals = {
        when: {name: count.total() for name, count in found.items()} for when, found in seen.items()
    }
    assert totals == {
        "first": {"One": 2, "Two": 1},
        "undone": {"One": 5, "Two": 1},
        "again": {"One": 2, "Two": 1},
        "later": {"One": 5},
    }


def test_an_endpoint_that_is_deleted_meanwhile_does_not_count(server, monkeypatch):
    """On PostgreSQL each statement sees what has been committed before it."""
    running = RunningCounts.of(server.database)
    with server.database.write() as connection:
        endpoints.insert(connection, endpoint("One", 2))
        assert set(running.read(connection)) == {"One"}
        endpoints.update(connection, endpoint("One", 3, modified_at=1))
        endpoints.insert(connection, endpoint("Two", 1))
        monkeypatch.setattr(endpoints, "several", lambda connection, names: [])
        assert running.read(connection) == {}
        monkeypatch.undo()
        assert set(running.read(connection)) == {"One", "Two"}
