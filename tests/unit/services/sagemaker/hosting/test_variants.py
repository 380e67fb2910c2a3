"""Shadow variants: what may be asked for, what is written for reconcile, how it is described."""

import pytest

from support.endpoints import settle, stored, weigh


@pytest.fixture(autouse=True)
def model(server):
    server.model("m")


def shadowed(server, name, *variants, shadow="S", **members):
    """A config of one production variant, or of `variants`, and one shadow variant."""
    shadows = [server.variant(shadow, **members)]
    return server.config(name, *variants, ShadowProductionVariants=shadows)


def serving(server, **members):
    """The endpoint `e`, in service with the shadow variant `S`."""
    server.CreateEndpoint(EndpointName="e", EndpointConfigName=shadowed(server, "c", **members))
    settle(server)


def test_a_config_is_described_with_its_shadow(server):
    shadowed(server, "c", InitialInstanceCount=2)
    described = server.DescribeEndpointConfig(EndpointConfigName="c")
    assert described["ShadowProductionVariants"] == [
        server.variant("S", InitialInstanceCount=2, InitialVariantWeight=1.0)
    ]
    assert [one["VariantName"] for one in described["ProductionVariants"]] == ["AllTraffic"]


@pytest.mark.parametrize(("production", "shadows"), [(2, 1), (1, 2), (2, 2)])
def test_there_is_one_of_each_kind(server, refusal, production, shadows):
    variants = [server.variant(f"p{number}") for number in range(production)]
    with_shadows = [server.variant(f"s{number}") for number in range(shadows)]
    said = refusal(lambda: server.config("c", *variants, ShadowProductionVariants=with_shadows))
    assert said.endswith(
        f"one production variant and one shadow variant; there are {production} and {shadows}."
    )


def test_its_name_is_no_production_variants(server, refusal):
    assert "must differ" in refusal(lambda: shadowed(server, "c", shadow="alltraffic"))


def test_its_model_must_exist(server, refusal):
    said = refusal(lambda: shadowed(server, "c", ModelName="Other"))
    assert said.startswith('Could not find model "arn:')


@pytest.mark.parametrize("weight", [float("inf"), float("nan")])
def test_its_weight_is_finite(server, refusal, weight):
    said = refusal(lambda: shadowed(server, "c", InitialVariantWeight=weight))
    assert said == "The weight of a shadow variant must be finite."


@pytest.mark.parametrize("weight", [0, 0.5, 7])
def test_its_weight_may_be_nothing_or_more_than_productions(server, weight):
    shadowed(server, "c", InitialVariantWeight=weight)
    described = server.DescribeEndpointConfig(EndpointConfigName="c")
    assert described["ShadowProductionVariants"] == [
        server.variant("S", InitialVariantWeight=weight)
    ]


def test_it_is_checked_as_a_production_variant(server, refusal):
    shadow = server.variant("S")
    del shadow["InstanceType"]
    said = refusal(lambda: server.config("c", ShadowProductionVariants=[shadow]))
    assert said == "Production variant S needs InstanceType."


SERVERLESS = {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}


@pytest.mark.parametrize(
    ("members", "feature"),
    [
        (SERVERLESS, "serverless inference"),
        ({"InstanceType": "ml.inf1.xlarge"}, "Inf1 instances"),
        ({"AcceleratorType": "ml.eia2.medium"}, "Elastic Inference"),
    ],
)
@pytest.mark.parametrize("kind", ["production", "shadow"])
def test_kinds_of_variants_that_sagemaker_refuses(server, refusal, members, feature, kind):
    of_production, of_shadow = (members, {}) if kind == "production" else ({}, members)
    production = server.variant("P", **of_production)
    said = refusal(lambda: shadowed(server, "c", production, **of_shadow))
    assert said.startswith(f"Shadow variants are not supported with {feature}")


def test_asynchronous_endpoints_have_none(server, refusal):
    shadows = [server.variant("S")]
    asynchronous = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}
    said = refusal(
        lambda: server.config(
            "c", ShadowProductionVariants=shadows, AsyncInferenceConfig=asynchronous
        )
    )
    assert said.startswith("Shadow variants are not supported with asynchronous inference")


def many(server):
    server.model("many", ModelDataUrl="s3://bucket/many/", Mode="MultiModel")


@pytest.mark.parametrize("kind", ["production", "shadow"])
def test_multi_model_endpoints_have_none(server, refusal, kind):
    many(server)
    models = ("many", "m") if kind == "production" else ("m", "many")
    production = server.variant("P", ModelName=models[0])
    said = refusal(lambda: shadowed(server, "c", production, ModelName=models[1]))
    assert said == "Shadow variants are not supported with multi-model endpoints (model many)."


def test_a_model_that_became_a_multi_model_since_is_noticed(server, refusal):
    server.model("many")
    shadowed(server, "c", ModelName="many")
    server.DeleteModel(ModelName="many")
    many(server)
    said = refusal(lambda: server.CreateEndpoint(EndpointName="e", EndpointConfigName="c"))
    assert said == "Shadow variants are not supported with multi-model endpoints (model many)."


def test_create_writes_what_is_wanted(server):
    shadowed(server, "c", InitialVariantWeight=0.5, InitialInstanceCount=2)
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    target = stored(server).target
    assert [one.name for one in target.variants] == ["AllTraffic"]
    shadow = target.shadow
    assert (shadow.name, shadow.weight, shadow.instance_count) == ("S", 0.5, 2)
    assert shadow.containers == target.variants[0].containers
    described = server.DescribeEndpoint(EndpointName="e")
    assert "ShadowProductionVariants" not in described


def test_an_endpoint_is_described_with_its_shadow(server):
    serving(server, InitialVariantWeight=0.5, InitialInstanceCount=2)
    described = server.DescribeEndpoint(EndpointName="e")
    assert [one["VariantName"] for one in described["ProductionVariants"]] == ["AllTraffic"]
    (shadow,) = described["ShadowProductionVariants"]
    assert shadow["VariantName"] == "S"
    assert (shadow["CurrentWeight"], shadow["DesiredWeight"]) == (0.5, 0.5)
    assert (shadow["CurrentInstanceCount"], shadow["DesiredInstanceCount"]) == (0, 2)
    assert shadow["DeployedImages"]
    assert "VariantStatus" not in shadow


def test_an_endpoint_without_one_says_nothing_of_it(server):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName=server.config("c"))
    settle(server)
    assert "ShadowProductionVariants" not in server.DescribeEndpoint(EndpointName="e")


def test_an_update_shows_the_shadow_that_is_pending(server):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName=server.config("plain"))
    settle(server)
    shadowed(server, "next", InstanceType="ml.c5.large")
    server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    described = server.DescribeEndpoint(EndpointName="e")
    assert "ShadowProductionVariants" not in described
    (pending,) = described["PendingDeploymentSummary"]["ShadowProductionVariants"]
    assert (pending["VariantName"], pending["InstanceType"]) == ("S", "ml.c5.large")
    assert (pending["CurrentWeight"], pending["DesiredWeight"]) == (0, 1)
    assert pending["VariantStatus"][0]["Status"] == "Creating"


def test_its_weight_and_count_change_in_place(server):
    serving(server)
    weigh(server, {"VariantName": "S", "DesiredWeight": 0.25, "DesiredInstanceCount": 3})
    record = stored(server)
    assert record.target.deployment_id == record.current.deployment_id
    assert record.target.variants == record.current.variants
    assert (record.target.shadow.weight, record.target.shadow.instance_count) == (0.25, 3)
    described = server.DescribeEndpoint(EndpointName="e")
    (shadow,) = described["ShadowProductionVariants"]
    assert (shadow["CurrentWeight"], shadow["DesiredWeight"]) == (1, 0.25)
    assert shadow["DesiredInstanceCount"] == 3
    assert shadow["VariantStatus"][0]["Status"] == "Updating"
    assert "VariantStatus" not in described["ProductionVariants"][0]


def test_its_weight_does_not_stand_in_for_productions(server, refusal):
    serving(server)
    assert "greater than 0" in refusal(
        lambda: weigh(server, {"VariantName": "AllTraffic", "DesiredWeight": 0})
    )
    weigh(server, {"VariantName": "S", "DesiredWeight": 0})


@pytest.mark.parametrize(
    ("before", "excluded", "expected"),
    [
        ("S", [], (0.25, 3)),
        ("S", ["DesiredWeight"], (1, 3)),
        ("S", ["DesiredWeight", "DesiredInstanceCount"], (1, 1)),
        ("Other", [], (1, 1)),
    ],
)
def test_an_update_retains_its_properties(server, before, excluded, expected):
    serving(server, shadow=before)
    weigh(server, {"VariantName": before, "DesiredWeight": 0.25, "DesiredInstanceCount": 3})
    settle(server)
    shadowed(server, "next")
    server.UpdateEndpoint(
        EndpointName="e",
        EndpointConfigName="next",
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": one} for one in excluded],
    )
    shadow = stored(server).target.shadow
    assert (shadow.weight, shadow.instance_count) == expected


def test_a_shadow_that_becomes_the_production_variant_has_the_weight_of_its_config(server):
    serving(server, InitialVariantWeight=0.1)
    server.config("next", server.variant("S"))
    server.UpdateEndpoint(
        EndpointName="e", EndpointConfigName="next", RetainAllVariantProperties=True
    )
    target = stored(server).target
    assert (target.variants[0].name, target.variants[0].weight) == ("S", 1)
    assert target.shadow is None


def test_it_is_described_while_the_endpoint_goes(server):
    serving(server)
    server.DeleteEndpoint(EndpointName="e")
    (shadow,) = server.DescribeEndpoint(EndpointName="e")["ShadowProductionVariants"]
    assert shadow["VariantStatus"][0]["Status"] == "Deleting"


def test_what_its_model_data_was_is_remembered(server):
    server.put("next.tar.gz")
    server.model("next", ModelDataUrl="s3://bucket/next.tar.gz")
    shadowed(server, "c", ModelName="next")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    (container,) = stored(server).target.shadow.containers
    assert container.model_data_url == "s3://bucket/next.tar.gz"
    assert container.model_data_etag is not None
