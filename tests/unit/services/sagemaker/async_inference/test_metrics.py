"""Gauges of the queues, by endpoint."""

import msgspec

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference import request_store
from sagehen.services.sagemaker.async_inference.metrics import Backlogs
from sagehen.services.sagemaker.hosting import endpoint_store, instance_store
from sagehen.services.sagemaker.hosting.records import Deployment, EndpointStatus
from sagehen.state.database import Database
from support.fixtures.async_queue import request
from support.fleet import deployment, endpoint, instance

PLAN = AsyncPlan(output_path="s3://out")


def test_each_asynchronous_endpoint_has_four_gauges(database: Database) -> None:
    plain = deployment("d1", 1)
    queueing = Deployment(
        deployment_id="d2", config_name="c", variants=plain.variants, asynchronous=PLAN
    )
    with database.write() as connection:
        for name, current in (("End", queueing), ("Empty", queueing), ("Plain", plain)):
            record = endpoint(EndpointStatus.IN_SERVICE, name=name, current=current)
            endpoint_store.insert(connection, record)
        for number in (1, 2):
            serving = instance(f"i-{number}", "d2", InstanceState.IN_SERVICE, endpoint_name="End")
            instance_store.insert(connection, serving)
        request_store.enqueue(connection, [(request(number), None) for number in range(4)])
        request_store.enqueue(connection, [(request(9, endpoint_name="Empty"), None)])
        gauges = {(name, of): value for name, of, value in Backlogs().read(connection, 1010.0)}

    assert gauges == {
        ("ApproximateBacklogSize", "End"): 4,
        ("ApproximateBacklogSizePerInstance", "End"): 2,
        ("ApproximateAgeOfOldestRequest", "End"): 10.0,
        ("HasBacklogWithoutCapacity", "End"): 0.0,
        ("ApproximateBacklogSize", "Empty"): 1,
        ("ApproximateBacklogSizePerInstance", "Empty"): 1,
        ("ApproximateAgeOfOldestRequest", "Empty"): 1.0,
        ("HasBacklogWithoutCapacity", "Empty"): 1.0,
    }


def test_without_asynchronous_endpoints_there_are_none(database: Database) -> None:
    with database.read() as connection:
        assert list(Backlogs().read(connection, 0)) == []


def test_an_endpoint_that_is_changed_is_read_again(database: Database) -> None:
    backlogs = Backlogs()

    def names() -> set[str]:
        with database.read() as connection:
            return {of for _, of, _ in backlogs.read(connection, 0)}

    assert names() == set()
    plain = endpoint(EndpointStatus.IN_SERVICE, name="One", current=deployment("d1", 1))
    with database.write() as connection:
        endpoint_store.insert(connection, plain)
    assert names() == set()
    queueing = msgspec.structs.replace(deployment("d2", 1), asynchronous=PLAN)
    with database.write() as connection:
        changed = msgspec.structs.replace(plain, current=queueing, modified_at=9.0)
        endpoint_store.update(connection, changed)
    assert names() == {"One"}
    with database.write() as connection:
        endpoint_store.delete(connection, "One")
    assert names() == set()
