"""Models with offline results: what goes together, and what becomes of their variants."""

import pytest

from support.endpoints import in_service, settle, stored, weigh

V = "SAGEHEN_OFFLINE_RESULTS"
VARIABLES = {V: "s3://results/job/", f"{V}_KEY": "0"}
ONLY = {**VARIABLES, f"{V}_ONLY": "true"}
XGBOOST = "sagemaker-xgboost:1.7-1"


def container(environment=VARIABLES, **more):
    return {"Image": XGBOOST, "Environment": environment, **more}


@pytest.fixture
def only(server):
    server.CreateModel(ModelName="m", PrimaryContainer=container(ONLY))


def test_a_variant_has_the_results_of_its_model(server):
    server.CreateModel(ModelName="m", PrimaryContainer=container())
    server.config("c", server.variant(InitialInstanceCount=2))
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    (variant,) = stored(server).target.variants
    assert variant.offline_results.source == "s3://results/job/"
    assert (variant.instance_count, variant.runs_no_model) == (2, False)
    assert variant.containers[0].environment == VARIABLES


def test_a_pipeline_has_them_in_one_container(server, refusal):
    server.CreateModel(ModelName="m", Containers=[container({}), container()])
    server.config("c")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    assert stored(server).target.variants[0].offline_results is not None
    said = refusal(lambda: server.CreateModel(ModelName="n", Containers=[container(), container()]))
    assert said.startswith("Only one container of a model may have the variables")


@pytest.mark.parametrize(
    "members",
    [
        {"PrimaryContainer": container(Mode="MultiModel", ModelDataUrl="s3://bucket/many/")},
        {
            "Containers": [
                container(ContainerHostname="a"),
                container({}, ContainerHostname="b"),
            ],
            "InferenceExecutionConfig": {"Mode": "Direct"},
        },
    ],
)
def test_they_are_those_of_one_model(server, refusal, members):
    said = refusal(lambda: server.CreateModel(ModelName="m", **members))
    assert said.startswith("SAGEHEN_OFFLINE_RESULTS is not supported for containers of Mode Multi")


def test_what_is_wrong_is_refused(server, refusal):
    wrong = container({V: "s3://results/job/"})
    said = refusal(lambda: server.CreateModel(ModelName="m", PrimaryContainer=wrong))
    assert said.startswith("SAGEHEN_OFFLINE_RESULTS needs SAGEHEN_OFFLINE_RESULTS_KEY.")


def test_asynchronous_endpoints_have_none(server, refusal):
    server.CreateModel(ModelName="m", PrimaryContainer=container())
    output = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}
    said = refusal(lambda: server.config("c", AsyncInferenceConfig=output))
    assert said.startswith("AsyncInferenceConfig is not supported with offline results")


def test_shadow_variants_have_none(server, refusal):
    server.model("plain")
    server.CreateModel(ModelName="m", PrimaryContainer=container())
    plain = server.variant(ModelName="plain")
    shadow = server.variant("S")
    said = refusal(lambda: server.config("c", plain, ShadowProductionVariants=[shadow]))
    assert said.startswith("Shadow variants are not supported with offline results")
    server.config("c", server.variant(), ShadowProductionVariants=[{**plain, "VariantName": "S"}])


def test_a_variant_without_a_model_has_no_instances(server, only, refusal):
    server.config("c", server.variant(InitialInstanceCount=3))
    in_service(server)
    (variant,) = server.DescribeEndpoint(EndpointName="e")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 0)
    said = refusal(lambda: weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}))
    assert said == (
        "Production variant AllTraffic runs no model (SAGEHEN_OFFLINE_RESULTS_ONLY), so its "
        "DesiredInstanceCount must be 0."
    )
    weigh(server, {"VariantName": "AllTraffic", "DesiredWeight": 2.0, "DesiredInstanceCount": 0})


def test_a_variant_without_a_model_may_name_any_image(server, refusal):
    unknown = container(ONLY, Image="123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1")
    server.CreateModel(ModelName="m", PrimaryContainer=unknown)
    server.config("c")
    in_service(server)
    run = {**unknown, "Environment": VARIABLES}
    said = refusal(lambda: server.CreateModel(ModelName="n", PrimaryContainer=run))
    assert said.startswith("Sagehen does not know how to run the image")


@pytest.mark.parametrize("to_only", [True, False])
def test_an_update_that_retains_counts_changes_between_model_and_none(server, only, to_only):
    server.model("plain")
    server.config("without")
    server.config("with", server.variant(ModelName="plain", InitialInstanceCount=2))
    before, after = ("with", "without") if to_only else ("without", "with")
    in_service(server, config=before)
    server.UpdateEndpoint(
        EndpointName="e", EndpointConfigName=after, RetainAllVariantProperties=True
    )
    assert stored(server).target.variants[0].instance_count == (0 if to_only else 2)
    settle(server)
