"""Variants as resources of Application Auto Scaling, on the rows that there really are."""

from dataclasses import replace

import msgspec
import pytest

from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.dimensions import INSTANCES, PROVISIONED_CONCURRENCY
from sagehen.services.autoscaling.records import ScalableTargetRecord, TargetKey
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.services.sagemaker.hosting.scaling import ENDPOINTS_SCALED, VariantResources
from sagehen.wire.errors import AwsError
from support.endpoints import change, in_service, settle, stored

RESOURCE = "endpoint/e/variant/AllTraffic"


class NoAlarms:
    def put(self, connection, definition, now):
        raise AssertionError

    def delete(self, connection, names, now):
        raise AssertionError


@pytest.fixture
def resources(server):
    server.model()
    server.config("c", server.variant(InitialInstanceCount=2))
    return VariantResources(server.call)


@pytest.fixture
def autoscaler(resources):
    return Autoscaler(resources, NoAlarms(), lambda connection, event: None)


def capacity(server, resources, resource_id=RESOURCE, dimension=INSTANCES):
    with server.database.read() as connection:
        found = resources.capacity(connection, resource_id, dimension)
        many = resources.capacities(connection, [(resource_id, dimension)])
    assert many == ({} if found is None else {(resource_id, dimension): found})
    return found


def set_desired(server, resources, count):
    with server.database.write() as connection:
        resources.set_desired(connection, RESOURCE, INSTANCES, count, 0)


def target_of(server):
    return ScalableTargetRecord(
        target_id="t",
        resource_id=RESOURCE,
        dimension=INSTANCES,
        arn="arn:t",
        minimum=1,
        maximum=9,
        created_at=0,
    )


def test_a_variant_that_serves_can_be_scaled(server, resources):
    in_service(server)
    found = capacity(server, resources)
    assert found.deployment == stored(server).current.deployment_id
    assert found._replace(deployment="") == (2, 0, True, None, 1, None, None, "")


@pytest.mark.parametrize(
    "name",
    ["endpoint/x/variant/AllTraffic", "endpoint/e/variant/x", "endpoint/E/variant/AllTraffic"],
)
def test_what_is_not_there_has_no_capacity(server, resources, name):
    in_service(server)
    assert capacity(server, resources, name) is None


def test_an_endpoint_that_changes_is_not_scalable(server, resources):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    assert capacity(server, resources).not_scalable == "Endpoint e is Creating."
    settle(server)
    change(server, status=EndpointStatus.DELETING)
    assert capacity(server, resources) is None


def test_a_new_count_is_that_of_update_endpoint_weights_and_capacities(server, resources):
    in_service(server)
    told = []
    server.database.listen(ENDPOINTS_SCALED, told.append)
    set_desired(server, resources, 5)
    record = stored(server)
    assert record.status is EndpointStatus.UPDATING
    assert record.current.variants[0].instance_count == 2
    assert record.target.variants[0].instance_count == 5
    assert record.target.deployment_id == record.current.deployment_id
    found = capacity(server, resources)
    assert (found.desired, found.is_settled) == (5, False)
    assert told == ["e"]
    with pytest.raises(AwsError, match="Cannot update in-progress endpoint"):
        set_desired(server, resources, 6)


def test_the_quota_holds_for_scaling_too(server, resources):
    in_service(server)
    server.configure(max_endpoint_instances=4)
    with pytest.raises(AwsError) as caught:
        set_desired(server, resources, 5)
    assert caught.value.code == "ResourceLimitExceeded"
    assert stored(server).status is EndpointStatus.IN_SERVICE


def test_only_an_asynchronous_endpoint_can_go_to_zero(server, resources):
    in_service(server)
    assert capacity(server, resources).minimum_allowed == 1
    output = {"S3OutputPath": "s3://bucket/out/"}
    server.config("a", AsyncInferenceConfig={"OutputConfig": output})
    server.CreateEndpoint(EndpointName="q", EndpointConfigName="a")
    settle(server, "q")
    name = "endpoint/q/variant/AllTraffic"
    assert capacity(server, resources, name).minimum_allowed == 0
    with server.database.write() as connection:
        resources.set_desired(connection, name, INSTANCES, 0, 0)
    assert stored(server, "q").target.variants[0].instance_count == 0


def test_burstable_types_cannot_be_registered(server, resources):
    server.config("b", server.variant(InstanceType="ml.t2.medium"))
    in_service(server, config="b")
    assert capacity(server, resources).unregistrable == (
        "You cannot register a variant with ml.t2.medium instance type as a scalable target. "
        "This is because the burstable performance of these instances can lead to unpredictable "
        "behavior with Auto Scaling."
    )


def test_instances_have_no_provisioned_concurrency(server, resources):
    in_service(server)
    found = capacity(server, resources, dimension=PROVISIONED_CONCURRENCY)
    assert "has no provisioned concurrency" in found.unregistrable


class TestServerless:
    @pytest.fixture
    def serve(self, server, resources):
        def serve(**config):
            config = {"MemorySizeInMB": 2048, "MaxConcurrency": 8} | config
            variant = {"VariantName": "AllTraffic", "ModelName": "m", "ServerlessConfig": config}
            server.config("s", variant)
            in_service(server, config="s")

        return serve

    def test_provisioned_concurrency_is_scaled(self, server, resources, serve):
        serve(ProvisionedConcurrency=2)
        found = capacity(server, resources, dimension=PROVISIONED_CONCURRENCY)
        assert found[:6] == (2, 2, True, None, 1, None)
        with server.database.write() as connection:
            resources.set_desired(connection, RESOURCE, PROVISIONED_CONCURRENCY, 5, 0)
        assert stored(server).target.variants[0].serverless.provisioned_concurrency == 5
        found = capacity(server, resources, dimension=PROVISIONED_CONCURRENCY)
        assert found[:3] == (5, 2, False)

    def test_more_than_the_greatest_concurrency_is_refused(self, server, resources, serve):
        serve(ProvisionedConcurrency=2)
        with server.database.write() as connection, pytest.raises(AwsError):
            resources.set_desired(connection, RESOURCE, PROVISIONED_CONCURRENCY, 9, 0)

    def test_without_any_it_cannot_be_registered(self, server, resources, serve):
        serve()
        found = capacity(server, resources, dimension=PROVISIONED_CONCURRENCY)
        assert "has no provisioned concurrency to scale" in found.unregistrable

    def test_its_memory_may_change_while_it_is_scaled_but_not_its_kind(
        self, server, serve, refusal
    ):
        serve(ProvisionedConcurrency=2)
        target = msgspec.structs.replace(target_of(server), dimension=PROVISIONED_CONCURRENCY)
        with server.database.write() as connection:
            store.put_target(connection, target)
        server.config("instances", server.variant())
        assert refusal(
            lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="instances")
        ) == (
            "Variant AllTraffic is a scalable target, so its instance type cannot change from a "
            "ServerlessConfig to ml.m5.large. Call DeregisterScalableTarget first."
        )
        config = {"MemorySizeInMB": 4096, "MaxConcurrency": 8, "ProvisionedConcurrency": 2}
        variant = {"VariantName": "AllTraffic", "ModelName": "m", "ServerlessConfig": config}
        server.config("larger", variant)
        server.UpdateEndpoint(EndpointName="e", EndpointConfigName="larger")
        assert stored(server).status is EndpointStatus.UPDATING

    def test_it_has_no_instance_count(self, server, resources, serve):
        serve(ProvisionedConcurrency=2)
        assert "is serverless" in capacity(server, resources).unregistrable


def test_a_variant_that_scales_from_zero_can_go_to_zero(server, resources):
    server.model("z", Environment={"SAGEHEN_SCALE_FROM_ZERO": "true"})
    server.config("z", server.variant(ModelName="z"))
    in_service(server, config="z")
    assert capacity(server, resources).minimum_allowed == 0
    set_desired(server, resources, 0)
    assert stored(server).target.variants[0].instance_count == 0


def test_the_version_tells_when_endpoints_have_changed(server, resources):
    def version():
        with server.database.read() as connection:
            return resources.version(connection)

    first = version()
    in_service(server)
    second = version()
    server.clock.seconds += 1
    set_desired(server, resources, 3)
    third = version()
    assert len({first, second, third}) == 3
    assert version() == third


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("number", [1, 2])
def test_a_count_and_its_activity_are_written_together_or_not_at_all(
    server, autoscaler, monkeypatch, number
):
    """`number`: after how many of the two writes the process ends."""
    in_service(server)
    target = target_of(server)
    with server.database.write() as connection:
        store.put_target(connection, target)

    def killed(connection, activity):
        if number == 2:
            add(connection, activity)
        raise _KilledError

    add = store.add_activity
    monkeypatch.setattr(store, "add_activity", killed)
    with server.database.read() as connection:
        before = autoscaler.capacity(connection, target.key)
    with pytest.raises(_KilledError), server.database.write() as connection:
        autoscaler.change(connection, target, before, 4, "cause", 0)
    monkeypatch.undo()
    assert stored(server).status is EndpointStatus.IN_SERVICE
    with server.database.read() as connection:
        assert store.activities_in_progress(connection) == []


def test_a_deleted_endpoint_takes_its_targets_with_it(server, autoscaler):
    in_service(server)
    with server.database.write() as connection:
        store.put_target(connection, target_of(server))
    make_call = server.call
    server.call = lambda: replace(make_call(), autoscaling=autoscaler)
    server.DeleteEndpoint(EndpointName="e")
    with server.database.read() as connection:
        assert store.find_target(connection, TargetKey(RESOURCE, INSTANCES)) is None


class TestUpdates:
    @pytest.fixture(autouse=True)
    def target(self, server, resources):
        in_service(server)
        with server.database.write() as connection:
            store.put_target(connection, target_of(server))

    def update(self, server, config):
        return server.UpdateEndpoint(EndpointName="e", EndpointConfigName=config)

    def test_a_scaled_variant_cannot_be_removed(self, server, refusal):
        server.config("other", server.variant("b"))
        assert refusal(lambda: self.update(server, "other")) == (
            "Variant AllTraffic is a scalable target, so the endpoint configuration other cannot "
            "remove it. Call DeregisterScalableTarget first."
        )

    def test_its_instance_type_cannot_change(self, server, refusal):
        server.config("other", server.variant(InstanceType="ml.m5.xlarge"))
        message = refusal(lambda: self.update(server, "other"))
        assert "cannot change from ml.m5.large to ml.m5.xlarge" in message

    def test_its_model_can(self, server):
        server.model("m2")
        server.config("other", server.variant(ModelName="m2"))
        self.update(server, "other")
        assert stored(server).status is EndpointStatus.UPDATING


def test_a_failed_update_is_told(server, resources):
    in_service(server)
    change(server, failure_reason="No.")
    assert capacity(server, resources).failure == "No."
