"""Serverless variants: what may be asked for, what is written for reconcile, what is described."""

import msgspec
import pytest

from sagehen.services.sagemaker.hosting.records import (
    EndpointStatus,
    ServerlessPlan,
    VariantPlan,
)
from support.endpoints import change, settle, stored, weigh

CONFIG = {"MemorySizeInMB": 2048, "MaxConcurrency": 5}


@pytest.fixture(autouse=True)
def model(server):
    server.model("m")


def variant(**members):
    return {
        "VariantName": "AllTraffic",
        "ModelName": "m",
        "ServerlessConfig": CONFIG,
        **members,
    }


def config(server, name="c", **serverless):
    return server.config(name, variant(ServerlessConfig={**CONFIG, **serverless}))


def serving(server, **serverless):
    """The endpoint `e`, in service."""
    server.CreateEndpoint(EndpointName="e", EndpointConfigName=config(server, **serverless))
    settle(server)


def test_a_config_is_described_as_given(server):
    config(server, ProvisionedConcurrency=2)
    (described,) = server.DescribeEndpointConfig(EndpointConfigName="c")["ProductionVariants"]
    assert described == variant(
        ServerlessConfig={**CONFIG, "ProvisionedConcurrency": 2}, InitialVariantWeight=1.0
    )


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"InstanceType": "ml.m5.large"}, "InstanceType"),
        ({"InitialInstanceCount": 1}, "InitialInstanceCount"),
        ({"AcceleratorType": "ml.eia2.medium"}, "AcceleratorType"),
        ({"ManagedInstanceScaling": {}}, "ManagedInstanceScaling"),
        ({"RoutingConfig": {"RoutingStrategy": "RANDOM"}}, "RoutingConfig"),
    ],
)
def test_what_instances_have_is_refused(server, refusal, members, said):
    message = refusal(lambda: server.config("c", variant(**members)))
    assert message.startswith("ServerlessConfig is not supported with")
    assert said in message


@pytest.mark.parametrize(
    ("serverless", "said"),
    [
        ({"MemorySizeInMB": 1536}, "MemorySizeInMB is 1536"),
        (
            {"MaxConcurrency": 5, "ProvisionedConcurrency": 6},
            "ProvisionedConcurrency (6) must be at most MaxConcurrency (5)",
        ),
    ],
)
def test_numbers_are_checked(server, refusal, serverless, said):
    assert said in refusal(lambda: config(server, **serverless))


def test_there_is_one_variant(server, refusal):
    two = [variant(), variant(VariantName="Other")]
    assert "more than one production variant" in refusal(lambda: server.config("c", *two))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"DataCaptureConfig": {"InitialSamplingPercentage": 1, "DestinationS3Uri": "s3://b/",
             "CaptureOptions": []}},
            "data capture",
        ),
        (
            {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}},
            "AsyncInferenceConfig is not supported with serverless inference",
        ),
        ({"EnableNetworkIsolation": True}, "EnableNetworkIsolation"),
    ],
)  # fmt: skip
def test_features_of_endpoints_are_refused(server, refusal, more, said):
    assert said in refusal(lambda: server.config("c", variant(), **more))


def test_shadow_variants_are_refused(server, refusal):
    shadows = [server.variant("S")]
    message = refusal(lambda: server.config("c", variant(), ShadowProductionVariants=shadows))
    assert "serverless inference" in message


@pytest.mark.parametrize(
    ("container", "model", "said"),
    [
        ({"Mode": "MultiModel", "ModelDataUrl": "s3://bucket/many/"}, {}, "multi-model"),
        ({"Environment": {"SAGEHEN_GPU_FRACTION": "0.5"}}, {}, "GPUs"),
        ({}, {"EnableNetworkIsolation": True}, "network isolation"),
        ({}, {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["s-1"]}}, "VPC"),
    ],
)
def test_models_that_it_cannot_run_are_refused(server, refusal, container, model, said):
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
    primary = {"Image": image, "ModelDataUrl": "s3://bucket/model.tar.gz", **container}
    server.CreateModel(ModelName="other", PrimaryContainer=primary, **model)
    assert said in refusal(lambda: server.config("c", variant(ModelName="other")))


def test_pipelines_are_refused(server, refusal):
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
    one = {"Image": image, "ModelDataUrl": "s3://bucket/model.tar.gz"}
    server.CreateModel(ModelName="pipeline", Containers=[one, one])
    message = refusal(lambda: server.config("c", variant(ModelName="pipeline")))
    assert "inference pipelines" in message


@pytest.mark.parametrize(("provisioned", "count"), [(None, 0), (3, 1)])
def test_its_plan(server, provisioned, count):
    given = {} if provisioned is None else {"ProvisionedConcurrency": provisioned}
    server.CreateEndpoint(EndpointName="e", EndpointConfigName=config(server, **given))
    (plan,) = stored(server).target.variants
    assert plan.serverless == ServerlessPlan(
        memory_mb=2048, max_concurrency=5, provisioned_concurrency=provisioned
    )
    assert (plan.instance_type, plan.instance_count) == ("serverless-2048MB", count)
    assert plan.startup_timeout_seconds == 180


def test_it_is_described_without_instances(server):
    serving(server)
    (described,) = server.DescribeEndpoint(EndpointName="e")["ProductionVariants"]
    assert described["CurrentServerlessConfig"] == CONFIG
    assert described["DesiredServerlessConfig"] == CONFIG
    assert not {"CurrentInstanceCount", "DesiredInstanceCount"} & described.keys()


def test_it_is_updated(server):
    serving(server)
    config = {"MaxConcurrency": 8, "ProvisionedConcurrency": 2}
    weigh(server, {"VariantName": "AllTraffic", "ServerlessUpdateConfig": config})
    (described,) = server.DescribeEndpoint(EndpointName="e")["ProductionVariants"]
    assert described["CurrentServerlessConfig"] == CONFIG
    assert described["DesiredServerlessConfig"] == {"MemorySizeInMB": 2048, **config}
    assert described["VariantStatus"][0]["Status"] == "Updating"
    (plan,) = stored(server).target.variants
    assert plan.instance_count == 1
    settle(server)
    weigh(server, {"VariantName": "AllTraffic", "ServerlessUpdateConfig": {"MaxConcurrency": 3}})
    (plan,) = stored(server).target.variants
    assert plan.serverless.provisioned_concurrency == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"DesiredInstanceCount": 2}, "has no DesiredInstanceCount"),
        ({"ServerlessUpdateConfig": {"ProvisionedConcurrency": 6}}, "at most MaxConcurrency (5)"),
    ],
)
def test_what_an_update_may_not_change(server, refusal, changed, said):
    serving(server)
    assert said in refusal(lambda: weigh(server, {"VariantName": "AllTraffic", **changed}))


def test_instances_have_no_serverless_config(server, refusal):
    server.config("c")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    settle(server)
    changed = {"VariantName": "AllTraffic", "ServerlessUpdateConfig": {"MaxConcurrency": 2}}
    assert "is not serverless" in refusal(lambda: weigh(server, changed))


def test_instances_do_not_become_serverless(server, refusal):
    server.config("instances")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="instances")
    settle(server)
    config(server)
    update = {"EndpointName": "e", "EndpointConfigName": "c"}
    assert "cannot be updated to a serverless one" in refusal(
        lambda: server.UpdateEndpoint(**update)
    )


def test_serverless_becomes_instances(server):
    serving(server, ProvisionedConcurrency=1)
    server.config("instances", server.variant(InitialInstanceCount=3))
    server.UpdateEndpoint(
        EndpointName="e", EndpointConfigName="instances", RetainAllVariantProperties=True
    )
    (plan,) = stored(server).target.variants
    assert (plan.serverless, plan.instance_count) == (None, 3)


def test_an_update_takes_the_new_config_s_concurrency(server):
    serving(server, ProvisionedConcurrency=2)
    config(server, "next", MaxConcurrency=9)
    server.UpdateEndpoint(
        EndpointName="e", EndpointConfigName="next", RetainAllVariantProperties=True
    )
    (plan,) = stored(server).target.variants
    assert plan.instance_count == 0
    assert plan.serverless.max_concurrency == 9


def test_what_runs_survives_an_update(server):
    serving(server)
    change(server, running={"AllTraffic": 2})
    weigh(server, {"VariantName": "AllTraffic", "ServerlessUpdateConfig": {"MaxConcurrency": 9}})
    assert stored(server).running == {"AllTraffic": 2}


def test_a_serverless_endpoint_at_zero_takes_no_capacity(server):
    server.configure(max_endpoint_instances=1)
    serving(server)
    server.config("instances")
    server.CreateEndpoint(EndpointName="other", EndpointConfigName="instances")
    assert stored(server, "other").status is EndpointStatus.CREATING


# Scale from zero


@pytest.fixture
def from_zero(server):
    server.model("zero", Environment={"SAGEHEN_SCALE_FROM_ZERO": "true"})
    server.config("zero", server.variant(ModelName="zero"))
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="zero")
    settle(server)
    return server


def test_a_model_may_scale_from_zero(from_zero):
    weigh(from_zero, {"VariantName": "AllTraffic", "DesiredInstanceCount": 0})
    (plan,) = stored(from_zero).target.variants
    assert (plan.instance_count, plan.scales_from_zero, plan.starts_on_demand) == (0, True, True)


def test_with_instances_calls_start_none(from_zero):
    (plan,) = stored(from_zero).current.variants
    assert not plan.starts_on_demand


def test_other_models_need_an_instance(server, refusal):
    server.config("c")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    settle(server)
    message = refusal(
        lambda: weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 0})
    )
    assert "SAGEHEN_SCALE_FROM_ZERO" in message


def test_the_variable_is_checked(server, refusal):
    environment = {"SAGEHEN_SCALE_FROM_ZERO": "perhaps"}
    message = refusal(lambda: server.model("zero", Environment=environment))
    assert message == "SAGEHEN_SCALE_FROM_ZERO is 'perhaps'; it must be true or false."


def test_rows_written_before_serverless_are_read(server):
    """Their plans lack the members of today."""
    server.config("c")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    plan = msgspec.to_builtins(stored(server).target.variants[0])
    del plan["serverless"], plan["scales_from_zero"]
    assert msgspec.convert(plan, VariantPlan) == stored(server).target.variants[0]
