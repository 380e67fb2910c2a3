"""Endpoints: what is written for reconcile, how it is described, what is refused in which state."""

from datetime import UTC, datetime

import pytest

from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.frame.image_versions import resolved_image
from sagehen.frame.routes import RoutingStrategy
from sagehen.services.sagemaker.hosting import instance_store as instances
from sagehen.services.sagemaker.hosting.records import EndpointStatus, InstanceRecord
from sagehen.wire.errors import AwsError
from support.endpoints import (
    ARN,
    CONFIG_ARN,
    change,
    in_service,
    settle,
    stored,
    weigh,
)


@pytest.fixture(autouse=True)
def config(server):
    server.model()
    server.config("c")


def start(server, instance_id, state=InstanceState.IN_SERVICE, stop_at=None, variant="AllTraffic"):
    deployment = stored(server).current or stored(server).target
    spec = InstanceSpec(
        instance_id=instance_id,
        endpoint_name="e",
        variant_name=variant,
        instance_type="ml.m5.large",
        containers=(),
    )
    record = InstanceRecord(
        instance_id=instance_id,
        endpoint_name="e",
        deployment_id=deployment.deployment_id,
        variant_name=variant,
        spec=spec,
        state=state,
        stop_at=stop_at,
    )
    with server.database.write() as connection:
        instances.insert(connection, record)


def test_create_writes_what_is_wanted_and_wakes_reconcile(server):
    environment = {"OMP_NUM_THREADS": "2"}
    server.model(
        "many",
        ModelDataUrl="s3://bucket/many/",
        Mode="MultiModel",
        Environment=environment,
        MultiModelConfig={"ModelCacheSetting": "Disabled"},
        ContainerHostname="host",
    )
    server.config(
        "two",
        server.variant("a", InitialVariantWeight=3),
        server.variant(
            "b",
            ModelName="many",
            InitialInstanceCount=2,
            RoutingConfig={"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            ContainerStartupHealthCheckTimeoutInSeconds=60,
            ModelDataDownloadTimeoutInSeconds=120,
        ),
    )
    answer = server.CreateEndpoint(EndpointName="My-End", EndpointConfigName="TWO")
    assert answer == {"EndpointArn": ARN + "my-end"}
    assert server.hints == 1
    record = stored(server, "my-end")
    assert (record.name, record.status, record.current) == ("My-End", "Creating", None)
    assert record.target.config_name == "two"
    a, b = record.target.variants
    assert (a.weight, a.instance_count, a.strategy) == (3, 1, RoutingStrategy.RANDOM)
    assert (a.startup_timeout_seconds, a.download_timeout_seconds) == (480, 3600)
    assert a.containers[0].hostname == "primary"
    assert (b.weight, b.instance_count) == (1, 2)
    assert b.strategy is RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
    assert (b.startup_timeout_seconds, b.download_timeout_seconds) == (60, 120)
    assert b.containers == (
        ContainerSpec(
            hostname="host",
            image=b.containers[0].image,
            model_data_url="s3://bucket/many/",
            environment=environment,
            multi_model=True,
            model_cache=False,
        ),
    )


def test_uncompressed_data_is_wanted_as_files(server):
    files = {"S3Uri": "s3://bucket/many/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {"Image": "sagemaker-xgboost:1", "ModelDataSource": {"S3DataSource": files}}
    server.CreateModel(ModelName="files", Containers=[container])
    server.config("f", server.variant(ModelName="files"))
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="f")
    (spec,) = stored(server).target.variants[0].containers
    assert (spec.model_data_url, spec.model_data_compressed) == ("s3://bucket/many/", False)


def test_missing_endpoint(server, refusal):
    said = f'Could not find endpoint "{ARN}nope".'
    assert refusal(lambda: server.DescribeEndpoint(EndpointName="Nope")) == said
    assert refusal(lambda: server.DeleteEndpoint(EndpointName="Nope")) == said
    assert said == refusal(
        lambda: server.UpdateEndpoint(EndpointName="Nope", EndpointConfigName="c")
    )
    assert said == refusal(
        lambda: server.UpdateEndpointWeightsAndCapacities(
            EndpointName="Nope", DesiredWeightsAndCapacities=[]
        )
    )


def test_existing_endpoint(server, refusal):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    said = refusal(lambda: server.CreateEndpoint(EndpointName="E", EndpointConfigName="c"))
    assert said == f'Cannot create already existing endpoint "{ARN}e".'
    assert server.hints == 1


def test_config_and_models_must_exist(server, refusal):
    def create():
        server.CreateEndpoint(EndpointName="e", EndpointConfigName="Gone")

    assert refusal(create) == f'Could not find endpoint configuration "{CONFIG_ARN}gone".'
    server.config("gone")
    server.DeleteModel(ModelName="m")
    assert 'Could not find model "arn:' in refusal(create)
    assert stored(server) is None


def test_describe_while_creating(server):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    now = datetime.fromtimestamp(server.clock.now(), UTC)
    assert server.DescribeEndpoint(EndpointName="E") == {
        "EndpointName": "e",
        "EndpointArn": ARN + "e",
        "EndpointConfigName": "c",
        "EndpointStatus": "Creating",
        "CreationTime": now,
        "LastModifiedTime": now,
    }


def test_describe_in_service_counts_what_serves(server):
    in_service(server)
    start(server, "1")
    start(server, "2", state=InstanceState.STARTING)
    start(server, "3", stop_at=1.0)
    start(server, "4", variant="another")
    now = datetime.fromtimestamp(server.clock.now(), UTC)
    described = server.DescribeEndpoint(EndpointName="e")
    assert described["EndpointStatus"] == "InService"
    (variant,) = described["ProductionVariants"]
    image = variant["DeployedImages"][0]["SpecifiedImage"]
    assert variant == {
        "VariantName": "AllTraffic",
        "DeployedImages": [
            {
                "SpecifiedImage": image,
                "ResolvedImage": resolved_image(image, "installed", {}),
                "ResolutionTime": now,
            }
        ],
        "CurrentWeight": 1.0,
        "DesiredWeight": 1.0,
        "CurrentInstanceCount": 1,
        "DesiredInstanceCount": 1,
    }
    assert "PendingDeploymentSummary" not in described


def test_describe_failed(server):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    change(server, status=EndpointStatus.FAILED, failure_reason="It did not start.")
    described = server.DescribeEndpoint(EndpointName="e")
    assert described["FailureReason"] == "It did not start."
    assert described["EndpointConfigName"] == "c"
    assert "ProductionVariants" not in described


def test_delete_is_only_asked_for(server):
    in_service(server)
    server.DeleteEndpoint(EndpointName="E")
    described = server.DescribeEndpoint(EndpointName="e")
    assert described["EndpointStatus"] == "Deleting"
    assert described["ProductionVariants"][0]["VariantStatus"][0]["Status"] == "Deleting"


def test_list(server):
    for name in ("one", "two", "three"):
        server.CreateEndpoint(EndpointName=name, EndpointConfigName="c")
    settle(server, "two")
    listed = server.ListEndpoints(StatusEquals="InService")["Endpoints"]
    assert [one["EndpointName"] for one in listed] == ["two"]
    by_status = server.ListEndpoints(SortBy="Status", SortOrder="Ascending")["Endpoints"]
    assert [one["EndpointName"] for one in by_status] == ["one", "three", "two"]
    now = datetime.fromtimestamp(server.clock.now(), UTC)
    assert server.ListEndpoints(LastModifiedTimeAfter=now)["Endpoints"] == []
    assert len(server.ListEndpoints(CreationTimeAfter=now.timestamp())["Endpoints"]) == 3


def limit_of(act):
    with pytest.raises(AwsError) as caught:
        act()
    assert caught.value.code == "ResourceLimitExceeded"
    return caught.value.message


def test_all_endpoints_together_have_a_limit(server):
    server.configure(max_endpoint_instances=2)
    in_service(server)
    server.config("two", server.variant(InitialInstanceCount=2))
    said = limit_of(lambda: server.CreateEndpoint(EndpointName="f", EndpointConfigName="two"))
    assert said.startswith(
        "The account-level service limit 'Number of instances across active endpoints' is 2 "
        "Instances, with current utilization of 1 Instances and a request delta of 2 Instances. "
    )
    assert "max_endpoint_instances" in said
    assert "of 2 Instances." in limit_of(
        lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="two")
    )
    limit_of(lambda: weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}))
    weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 2})


def test_a_laptop_stands_in_for_anything_unless_told_otherwise(server):
    variant = server.variant(InstanceType="ml.p5.48xlarge")
    server.config("huge", variant)
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="huge")
    server.configure(strict_capacity=True)
    said = limit_of(lambda: server.CreateEndpoint(EndpointName="f", EndpointConfigName="huge"))
    assert said.startswith("The account-level service limit 'ml.p5.48xlarge for endpoint usage' is")
    assert "strict_capacity" in said


def test_each_status_that_is_asked_for_is_an_event(server, monkeypatch):
    told = []
    monkeypatch.setattr(
        "sagehen.services.sagemaker.hosting.endpoints.put_event",
        lambda connection, event: told.append(event.detail["EndpointStatus"]),
    )
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    settle(server)
    weigh(server, {"VariantName": "AllTraffic", "DesiredWeight": 2.0})
    settle(server)
    server.DeleteEndpoint(EndpointName="e")
    assert told == ["CREATING", "UPDATING", "DELETING"]
