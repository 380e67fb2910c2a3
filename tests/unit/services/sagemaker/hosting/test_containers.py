"""Models of several containers: what goes together, and what each is called."""

import pytest

from sagehen.frame.routes import ExecutionMode
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.containers import container_specs, execution_mode

XGBOOST = "sagemaker-xgboost:1.7-1"
DATA = "s3://bucket/model.tar.gz"
MANY = {"Mode": "MultiModel", "ModelDataUrl": "s3://bucket/many/"}
DIRECT = {"Mode": "Direct"}


def containers(*hostnames, **more):
    given = [{"ContainerHostname": one} if one else {} for one in hostnames]
    return [{"Image": XGBOOST, "ModelDataUrl": DATA, **one, **more} for one in given]


def create(server, listed, mode=None, name="m"):
    given = {"InferenceExecutionConfig": mode} if mode else {}
    return server.CreateModel(ModelName=name, Containers=listed, **given)


@pytest.mark.parametrize(
    ("listed", "mode"),
    [
        (containers(None, None), None),
        (containers("clean", "predict"), {"Mode": "Serial"}),
        (containers(*[None] * 15), None),
        ([*containers(None), *containers(None, **MANY)], None),
        (containers("a", "b"), DIRECT),
        (containers("a", "b", **MANY), DIRECT),
        (containers("only"), {"Mode": "Serial"}),
    ],
)
def test_what_is_created_is_described(server, listed, mode):
    create(server, listed, mode)
    described = server.DescribeModel(ModelName="m")
    assert described["Containers"] == [{"Mode": "SingleModel", **one} for one in listed]
    assert described.get("InferenceExecutionConfig") == mode
    assert "PrimaryContainer" not in described


@pytest.mark.parametrize(
    ("listed", "mode", "said"),
    [
        (
            containers(None, None, **MANY),
            None,
            "More than one container in MultiModel mode is not supported with inference pipeline.",
        ),
        (
            containers("clean", None),
            None,
            "Specify a ContainerHostname for every container of an inference pipeline or for none; "
            "there are only clean.",
        ),
        (
            containers("a", "b", "A"),
            None,
            "The ContainerHostnames of a model must differ; these are a, b, A.",
        ),
        (
            containers("a", None),
            DIRECT,
            "With InferenceExecutionConfig of Mode Direct every container needs a "
            "ContainerHostname, by which TargetContainerHostname names it.",
        ),
        (
            containers("a"),
            DIRECT,
            "InferenceExecutionConfig with Mode Direct needs more than one container in "
            "Containers.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(server, refusal, listed, mode, said):
    assert refusal(lambda: create(server, listed, mode)) == said


def test_a_primary_container_is_not_invoked_directly(server, refusal):
    (primary,) = containers("a")
    said = refusal(
        lambda: server.CreateModel(
            ModelName="m", PrimaryContainer=primary, InferenceExecutionConfig=DIRECT
        )
    )
    assert "needs more than one container" in said


def test_every_container_is_checked(server, refusal):
    broken = [*containers(None), {"Image": XGBOOST, "ModelDataUrl": DATA + ".absent"}]
    said = refusal(lambda: create(server, broken))
    assert said.startswith(f"Could not access model data at {DATA}.absent")


@pytest.mark.parametrize(
    ("definition", "hostnames"),
    [
        ({"PrimaryContainer": containers(None)[0]}, ["primary"]),
        ({"Containers": containers("only")}, ["only"]),
        ({"Containers": containers(None, None)}, ["container-1", "container-2"]),
        ({"Containers": containers("clean", "predict")}, ["clean", "predict"]),
    ],
)
def test_each_has_a_name(definition, hostnames):
    assert [one.hostname for one in container_specs(definition, {})] == hostnames
    assert execution_mode(definition) is ExecutionMode.SERIAL


def test_all_containers_of_a_model_are_isolated():
    definition = {"Containers": containers(None, None)}
    assert not any(one.network_isolation for one in container_specs(definition, {}))
    definition["EnableNetworkIsolation"] = True
    assert all(one.network_isolation for one in container_specs(definition, {}))


def test_the_mode_is_a_part_of_what_is_deployed(server):
    create(server, containers("a", "b"), DIRECT)
    variant = {
        "VariantName": "v",
        "ModelName": "m",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    server.CreateEndpointConfig(EndpointConfigName="c", ProductionVariants=[variant])
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    with server.database.read() as connection:
        record = endpoints.get(connection, "e")
    (deployed,) = record.target.variants
    assert deployed.mode is ExecutionMode.DIRECT
    assert [one.hostname for one in deployed.containers] == ["a", "b"]


def test_a_registrys_credentials_are_refused_where_an_image_is_pulled(server, refusal):
    access = {"RepositoryAccessMode": "Vpc"}
    credentials = {"RepositoryCredentialsProviderArn": "arn:aws:lambda:eu-west-1:1:function:f"}
    with_login = {**access, "RepositoryAuthConfig": credentials}
    create(server, containers(None, ImageConfig=with_login))  # an adapter runs it
    server.configure(launcher="docker")
    said = refusal(lambda: create(server, containers(None, ImageConfig=with_login), name="n"))
    assert said.startswith("Not implemented by Sagehen yet: credentials of a registry")
    assert "ImageConfig.RepositoryAuthConfig" in said
    create(server, containers(None, ImageConfig=access), name="n")
