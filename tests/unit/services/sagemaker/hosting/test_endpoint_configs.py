"""Endpoint configs: what is stored, what is described, and what is refused."""

from datetime import UTC, datetime

import pytest

from support.endpoints import stored

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/"


@pytest.fixture(autouse=True)
def model(server):
    server.model("m")


def test_create_and_describe(server):
    variant = server.variant(
        InitialVariantWeight=2.0, VolumeSizeInGB=30, RoutingConfig={"RoutingStrategy": "RANDOM"}
    )
    capture = {
        "EnableCapture": False,
        "InitialSamplingPercentage": 1,
        "DestinationS3Uri": "s3://bucket/capture",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    given = {"KmsKeyId": "key", "DataCaptureConfig": capture}
    answer = server.CreateEndpointConfig(
        EndpointConfigName="My-Config",
        ProductionVariants=[variant],
        ShadowProductionVariants=[],
        Tags=[{"Key": "a", "Value": "b"}],
        **given,
    )
    assert answer == {"EndpointConfigArn": ARN + "my-config"}
    assert server.DescribeEndpointConfig(EndpointConfigName="my-CONFIG") == {
        "EndpointConfigName": "My-Config",
        "EndpointConfigArn": ARN + "my-config",
        "ProductionVariants": [variant],
        "EnableNetworkIsolation": False,
        "CreationTime": datetime.fromtimestamp(server.clock.now(), UTC),
        **given,
    }
    tags = server.ListTags(ResourceArn=ARN + "my-config")["Tags"]
    assert tags == [{"Key": "a", "Value": "b"}]


def test_weight_is_described_with_its_default(server):
    server.config("c")
    (variant,) = server.DescribeEndpointConfig(EndpointConfigName="c")["ProductionVariants"]
    assert variant == server.variant(InitialVariantWeight=1.0)


def test_missing_config(server, refusal):
    said = f'Could not find endpoint configuration "{ARN}nope".'
    assert refusal(lambda: server.DescribeEndpointConfig(EndpointConfigName="Nope")) == said
    assert refusal(lambda: server.DeleteEndpointConfig(EndpointConfigName="Nope")) == said


def test_existing_config(server, refusal):
    server.config("c")
    said = refusal(lambda: server.config("C"))
    assert said == f'Cannot create already existing endpoint configuration "{ARN}c".'


def test_model_must_exist(server, refusal):
    said = refusal(lambda: server.config("c", server.variant(ModelName="Other")))
    assert said == ('Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/other".')


def test_delete_frees_the_name(server):
    server.config("c")
    assert server.DeleteEndpointConfig(EndpointConfigName="C") == {}
    server.config("c")


def test_list(server):
    for name in ("b", "a"):
        server.config(name)
    listed = server.ListEndpointConfigs(SortBy="Name", SortOrder="Ascending")["EndpointConfigs"]
    assert [one["EndpointConfigName"] for one in listed] == ["a", "b"]
    assert set(listed[0]) == {"EndpointConfigName", "EndpointConfigArn", "CreationTime"}


def test_variant_names_must_differ(server, refusal):
    said = refusal(lambda: server.config("c", server.variant("A"), server.variant("a")))
    assert "must differ" in said


@pytest.mark.parametrize("weights", [(0, 0), (1e308, 1e308), (float("nan"), 1)])
def test_weights_need_a_sum(server, refusal, weights):
    variants = [
        server.variant(f"v{i}", InitialVariantWeight=weight) for i, weight in enumerate(weights)
    ]
    assert "weights" in refusal(lambda: server.config("c", *variants))


def test_a_variant_may_weigh_nothing(server):
    server.config("c", server.variant("a"), server.variant("b", InitialVariantWeight=0))
    described = server.DescribeEndpointConfig(EndpointConfigName="c")["ProductionVariants"]
    assert [one["InitialVariantWeight"] for one in described] == [1, 0]


@pytest.mark.parametrize("member", ["InstanceType", "InitialInstanceCount"])
def test_instances_must_be_given(server, refusal, member):
    variant = server.variant()
    del variant[member]
    said = refusal(lambda: server.config("c", variant))
    assert said == f"Production variant AllTraffic needs {member}."


def test_instance_type_of_a_newer_client(server, refusal):
    said = refusal(lambda: server.config("c", server.variant(InstanceType="ml.z99.huge")))
    assert "ml.z99.huge" in said


def test_managed_instance_scaling_is_of_components_only(server, refusal):
    variant = server.variant(ManagedInstanceScaling={"Status": "ENABLED"})
    assert refusal(lambda: server.config("c", variant)) == (
        "ManagedInstanceScaling is only supported for inference component endpoints."
    )


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("InstancePools", [{"InstanceType": "ml.m5.large"}]),
        ("AcceleratorType", "ml.eia2.medium"),
        ("CoreDumpConfig", {"DestinationS3Uri": "s3://bucket/dump"}),
        ("RoutingConfig", {"RoutingStrategy": "PREFIX_AWARE"}),
    ],
)
def test_variants_that_are_not_built(server, refusal, member, value):
    said = refusal(lambda: server.config("c", server.variant(**{member: value})))
    assert said.startswith("Not implemented by Sagehen yet: ")


@pytest.mark.parametrize("members", [{}, {"ManagedInstanceScaling": {"Status": "ENABLED"}}])
def test_inference_component_endpoints_are_not_built(server, refusal, members):
    variant = server.variant(**members)
    del variant["ModelName"]
    message = refusal(lambda: server.config("c", variant))
    assert message.startswith("Not implemented by Sagehen yet: inference components")


def test_prefix_aware_routing_config_needs_its_strategy(server, refusal):
    routing = {"RoutingStrategy": "RANDOM", "PrefixAwareRoutingConfig": {}}
    variant = server.variant(RoutingConfig=routing)
    message = refusal(lambda: server.config("c", variant))
    assert message.startswith("PrefixAwareRoutingConfig goes only with")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("ExplainerConfig", {}),
        ("DataCaptureConfig", {"EnableCapture": True}),
        ("DataCaptureConfig", {"InitialSamplingPercentage": 100}),
        ("MetricsConfig", {"EnableEnhancedMetrics": True}),
        ("CrossRegionTrafficConfig", {}),
    ],
)
def test_configs_that_are_not_built(server, refusal, member, value):
    said = refusal(lambda: server.config("c", **{member: value}))
    assert said.startswith("Not implemented by Sagehen yet: ")
    assert member in said


@pytest.mark.parametrize("isolated", [False, True])
def test_network_isolation_of_a_config_is_that_of_all_its_containers(server, isolated):
    shadows = [server.variant("S")]
    server.config("c", ShadowProductionVariants=shadows, EnableNetworkIsolation=isolated)
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    variants = stored(server).target.all_variants
    containers = [container for variant in variants for container in variant.containers]
    assert [container.network_isolation for container in containers] == [isolated, isolated]
