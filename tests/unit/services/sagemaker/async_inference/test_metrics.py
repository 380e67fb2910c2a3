"""Gauges of the queues, by endpoint."""

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference import request_store
from sagehen.services.sagemaker.async_inference.metrics import backlogs
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
        gauges = {(name, of): value for name, of, value in backlogs(connection, 1010.0)}

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
        assert list(backlogs(connection, 0)) == []
