"""An endpoint's next status, from the states of its instances."""

import pytest

from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.reconciler.advance import advance, desired_variants
from sagehen.services.sagemaker.hosting.records import EndpointRecord, EndpointStatus
from support.fleet import deployment, endpoint, instance

STARTING, IN_SERVICE = InstanceState.STARTING, InstanceState.IN_SERVICE
FAILED = InstanceState.FAILED
OLD, NEW = deployment("d1", 1), deployment("d2", 2)
CREATING = endpoint(EndpointStatus.CREATING, target=NEW)
UPDATING = endpoint(EndpointStatus.UPDATING, current=OLD, target=NEW)


def after(record: EndpointRecord, *states: InstanceState, retried: tuple[str, ...] = ()):
    instances = [instance(f"i-{at}", "d2", state) for at, state in enumerate(states)]
    return advance(record, instances, retried, now=9.0)


@pytest.mark.parametrize("record", [CREATING, UPDATING])
def test_it_waits_for_all_instances(record: EndpointRecord) -> None:
    assert after(record, IN_SERVICE, STARTING) == record
    assert after(record, IN_SERVICE) == record


@pytest.mark.parametrize("record", [CREATING, UPDATING])
def test_it_is_in_service_once_all_instances_are(record: EndpointRecord) -> None:
    done = after(record, IN_SERVICE, IN_SERVICE)
    assert (done.status, done.current, done.target) == (EndpointStatus.IN_SERVICE, NEW, None)
    assert done.modified_at == 9.0


def test_a_creation_fails_with_its_first_instance_and_keeps_its_config() -> None:
    failed = after(CREATING, IN_SERVICE, FAILED)
    assert (failed.status, failed.target) == (EndpointStatus.FAILED, NEW)
    assert failed.failure_reason == "i-1 broke."


def test_an_update_that_fails_falls_back_to_what_serves() -> None:
    failed = after(UPDATING, FAILED)
    assert (failed.status, failed.current, failed.target) == (EndpointStatus.IN_SERVICE, OLD, None)
    assert failed.failure_reason == "i-0 broke."


def test_an_instance_that_is_retried_counts_as_settled() -> None:
    assert after(UPDATING, IN_SERVICE, FAILED, retried=("i-1",)).current == NEW


def test_fewer_instances_of_the_same_deployment_are_there_at_once() -> None:
    record = endpoint(
        EndpointStatus.UPDATING, current=deployment("d1", 2), target=deployment("d1", 1)
    )
    assert after(record).status is EndpointStatus.IN_SERVICE


@pytest.mark.parametrize(
    "status", [EndpointStatus.DELETING, EndpointStatus.FAILED, EndpointStatus.IN_SERVICE]
)
def test_only_operations_change_the_other_statuses(status: EndpointStatus) -> None:
    record = endpoint(status, current=OLD, target=NEW)
    assert after(record, IN_SERVICE, IN_SERVICE) == record


def test_the_greater_count_of_both_deployments_is_desired() -> None:
    grows = endpoint(
        EndpointStatus.UPDATING, current=deployment("d1", 3, 1), target=deployment("d1", 1, 2)
    )
    counts = {key: variant.instance_count for key, variant in desired_variants(grows).items()}
    assert counts == {("d1", "a"): 3, ("d1", "b"): 2}
    assert set(desired_variants(UPDATING)) == {("d1", "a"), ("d2", "a")}


@pytest.mark.parametrize(
    "record",
    [None, endpoint(EndpointStatus.DELETING, current=OLD), endpoint(EndpointStatus.FAILED)],
)
def test_nothing_is_desired_of_an_endpoint_that_does_not_serve(
    record: EndpointRecord | None,
) -> None:
    assert desired_variants(record) == {}
