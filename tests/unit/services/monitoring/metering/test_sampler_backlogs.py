"""A turn of the sampling loop: the backlogs of asynchronous endpoints become samples."""

import msgspec
import pytest

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import AsyncPlan
from sagehen.services.monitoring.metering import sampler as module
from sagehen.services.sagemaker.async_inference import lease_store as async_leases
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import AsyncRequest, OutputTarget
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting import instance_store as instances
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state import leases
from support.fleet import deployment, endpoint, instance
from support.sampling_world import START


def test_asynchronous_endpoints_have_no_zeros(world, monkeypatch):
    monkeypatch.setattr(
        world.sampler, "_backlogs", lambda *_: [("HasBacklogWithoutCapacity", "e", 0.0)]
    )
    for minute in range(3):
        world.clock.seconds = (START + minute) * 60 + 50
        world.report()
        world.turn()
    assert "Invocations" not in world.names()


def test_a_minute_has_one_sample_of_a_backlog(world):
    asynchronous(world, queued=3)
    for _ in range(11):
        world.turn()
        world.clock.seconds += module.TURN_SECONDS
    assert gauges(world)[0] == pytest.approx(3)
    told = world.numbers("ApproximateBacklogSize", "Count", dimensions={"EndpointName": "e"})
    assert told == (1, 3, 3, 3)


def asynchronous(world, instance_states=(), queued=0, leased=0):
    plan = AsyncPlan(output_path="s3://out/")
    made = msgspec.structs.replace(deployment("d"), asynchronous=plan)
    with world.database.write() as connection:
        record = endpoint(EndpointStatus.IN_SERVICE, name="e", current=made)
        endpoints.insert(connection, record)
        for number, state in enumerate(instance_states):
            one = instance(f"i-{number}", "d", state, endpoint_name="e")
            instances.insert(connection, one)
        requests = [
            AsyncRequest(
                request_id=f"r{number}",
                inference_id="i",
                endpoint_name="e",
                received_at=world.clock.now() - 100 + number,
                expires_at=world.clock.now() + 1000,
                timeout_seconds=9,
                output=OutputTarget(location="s3://out/1"),
            )
            for number in range(queued + leased)
        ]
        if requests:
            async_requests.enqueue(connection, [(one, None) for one in requests])
        async_leases.lease(connection, "e", leased, "w", 0.0, 1e12)


def gauges(world):
    def value(name, unit):
        return world.numbers(name, unit, dimensions={"EndpointName": "e"})[1]

    return (
        value("ApproximateBacklogSize", "Count"),
        value("ApproximateBacklogSizePerInstance", "Count"),
        value("ApproximateAgeOfOldestRequest", "Seconds"),
        value("HasBacklogWithoutCapacity", "Count"),
    )


SERVES, STARTS = InstanceState.IN_SERVICE, InstanceState.STARTING


@pytest.mark.parametrize(
    ("states", "queued", "leased", "told"),
    [
        ([], 0, 0, (0, 0, 0, 0)),
        ([], 3, 0, (3, 3, 100, 1)),
        ([STARTS], 3, 0, (3, 3, 100, 1)),
        ([SERVES, SERVES, STARTS], 4, 1, (5, 2.5, 100, 0)),
        ([], 0, 2, (2, 2, 100, 0)),
    ],
)
def test_backlogs(world, states, queued, leased, told):
    asynchronous(world, states, queued, leased)
    world.turn()
    assert gauges(world) == told
    shown = world.sampler.measured({"e"})
    assert shown["ApproximateBacklogSize"] == {("e",): told[0]}
    assert world.sampler.measured({"other"}) == {}


def test_of_several_controls_one_samples_backlogs(world):
    asynchronous(world, queued=3)
    world.turn()
    world.turn(world.another("other"))
    assert world.numbers("ApproximateBacklogSize", "Count", dimensions={"EndpointName": "e"}) == (
        1,
        3,
        3,
        3,
    )
    with world.database.write() as connection:
        leases.release(connection, module.LEASE_NAME, "me")
    world.clock.seconds += 60
    world.turn(world.another("other"))
    assert gauges(world)[0] == 6


def test_real_time_endpoints_have_no_backlog(world):
    with world.database.write() as connection:
        endpoints.insert(connection, endpoint(EndpointStatus.IN_SERVICE, current=deployment("d")))
    world.turn()
    assert world.names() == set()
