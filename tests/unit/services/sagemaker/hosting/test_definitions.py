"""Models: what is stored, what is described, and what is refused."""

import threading
from datetime import UTC, datetime

import pytest

from sagehen.wire.errors import AwsError

ARN = "arn:aws:sagemaker:us-east-1:000000000000:model/"
XGBOOST = "sagemaker-xgboost:1.7-1"
DATA = "s3://bucket/model.tar.gz"


def create(server, name="m", tags=None, **members):
    given = {"PrimaryContainer": {"Image": XGBOOST, "ModelDataUrl": DATA}, **members}
    if tags:
        given["Tags"] = tags
    return server.CreateModel(ModelName=name, **{k: v for k, v in given.items() if v is not None})


def create_with(server, **container):
    given = {"Image": XGBOOST, "ModelDataUrl": DATA, **container}
    given = {key: value for key, value in given.items() if value is not None}
    return create(server, PrimaryContainer=given)


def test_create_and_describe(server):
    vpc = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    answer = create(server, "My-Model", VpcConfig=vpc, EnableNetworkIsolation=True)
    assert answer == {"ModelArn": ARN + "my-model"}
    assert server.DescribeModel(ModelName="my-model") == {
        "ModelName": "My-Model",
        "ModelArn": ARN + "my-model",
        "PrimaryContainer": {"Image": XGBOOST, "ModelDataUrl": DATA, "Mode": "SingleModel"},
        "VpcConfig": vpc,
        "EnableNetworkIsolation": True,
        "CreationTime": datetime.fromtimestamp(server.clock.now(), UTC),
    }


def test_one_container_in_the_list_is_described_there(server):
    container = {"Image": XGBOOST, "ModelDataUrl": "s3://bucket/many/", "Mode": "MultiModel"}
    create(server, PrimaryContainer=None, Containers=[container])
    described = server.DescribeModel(ModelName="m")
    assert described["Containers"] == [container]
    assert "PrimaryContainer" not in described
    assert described["EnableNetworkIsolation"] is False


def test_missing_model(server, refusal):
    said = f'Could not find model "{ARN}nope".'
    assert refusal(lambda: server.DescribeModel(ModelName="Nope")) == said
    assert refusal(lambda: server.DeleteModel(ModelName="Nope")) == said


def test_name_is_taken_in_whatever_case(server, refusal):
    create(server, "Same")
    said = refusal(lambda: create(server, "sAME", tags=[{"Key": "a", "Value": "b"}]))
    assert said == f'Cannot create already existing model "{ARN}same".'
    assert server.ListTags(ResourceArn=ARN + "same") == {"Tags": []}


def test_concurrent_creates_have_one_winner(server):
    outcomes = []

    def attempt():
        try:
            outcomes.append(create(server, "race")["ModelArn"])
        except AwsError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == sorted([ARN + "race"] + ["ValidationException"] * 7)


def test_delete_takes_the_tags_along(server):
    create(server, tags=[{"Key": "team", "Value": "x"}])
    assert server.DeleteModel(ModelName="M") == {}
    create(server)
    assert server.ListTags(ResourceArn=ARN + "m") == {"Tags": []}


@pytest.mark.parametrize(
    "members",
    [
        {"PrimaryContainer": None},
        {"PrimaryContainer": None, "Containers": []},
        {"Containers": [{"Image": XGBOOST}]},
    ],
)
def test_exactly_one_of_the_two_members(server, refusal, members):
    said = refusal(lambda: create(server, **members))
    assert said == "Specify exactly one of PrimaryContainer and Containers."


def test_image_is_needed(server, refusal):
    assert refusal(lambda: create_with(server, Image=None)) == (
        "Specify one of either Image and Model Data URL or ModelPackageName in container "
        "definition."
    )


def test_unknown_image_says_which_are_known_and_how_to_map_ones_own(server, refusal):
    said = refusal(lambda: create_with(server, Image="mine:1"))
    assert "mine:1" in said
    assert "*xgboost*" in said
    assert "[images]" in said


def test_an_image_that_is_a_server_of_its_own_says_how_to_run_that(server, refusal):
    said = refusal(lambda: create_with(server, Image="763/djl-inference:0.36.0-lmi18.0.0-cu128"))
    assert "runs DJL Serving, which Sagehen does not bring" in said
    assert '[images] "djl-inference" =' in said


def test_an_image_that_only_sounds_like_a_known_one_is_refused_by_name(server, refusal):
    said = refusal(lambda: create_with(server, Image="763/sagemaker-neo-pytorch:1.12"))
    assert said.startswith("The image 763/sagemaker-neo-pytorch:1.12 runs models compiled by")
    assert "pytorch-inference" in said
    assert '[images] "sagemaker-neo-pytorch" =' in said
    server.configure(images={"sagemaker-neo-pytorch": ["python3", "serve.py"]})
    assert create_with(server, Image="763/sagemaker-neo-pytorch:1.12")


def test_image_that_the_settings_map(server):
    server.configure(images={"mine": ["python3", "serve.py"]})
    assert create_with(server, Image="repo/mine:1")


@pytest.mark.parametrize("key", ["absent.tar.gz", "model"])
def test_model_data_must_exist(server, refusal, key):
    said = refusal(
        lambda: server.CreateModel(
            ModelName="m",
            ExecutionRoleArn="arn:aws:iam::000000000000:role/r",
            PrimaryContainer={"Image": XGBOOST, "ModelDataUrl": f"s3://bucket/{key}"},
        )
    )
    assert said.startswith(
        f"Could not access model data at s3://bucket/{key}. Please ensure that the role "
        '"arn:aws:iam::000000000000:role/r" exists'
    )
    assert said.endswith(f"is located in us-east-1. Here: There is no object s3://bucket/{key}.")


def test_model_data_is_optional(server):
    create_with(server, ModelDataUrl=None)
    described = server.DescribeModel(ModelName="m")["PrimaryContainer"]
    assert described == {"Image": XGBOOST, "Mode": "SingleModel"}


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "https://host/key"])
def test_address_of_no_object(server, refusal, url):
    assert "is not the address of an object in S3" in refusal(
        lambda: create_with(server, ModelDataUrl=url)
    )


def test_many_models_need_a_prefix_in_a_bucket_that_exists(server, refusal):
    for good in ("s3://bucket/nothing-there-yet/", "s3://bucket/"):
        create_with(server, ModelDataUrl=good, Mode="MultiModel")
        server.DeleteModel(ModelName="m")
    slashless = {"ModelDataUrl": "s3://bucket/many", "Mode": "MultiModel"}
    assert "with a slash at its end" in refusal(lambda: create_with(server, **slashless))
    elsewhere = {"ModelDataUrl": "s3://other/many/", "Mode": "MultiModel"}
    said = refusal(lambda: create_with(server, **elsewhere))
    assert "Could not access model data" in said
    assert said.endswith("Here: There is no bucket other.")
    nowhere = {"ModelDataUrl": None, "Mode": "MultiModel"}
    assert "needs a ModelDataUrl" in refusal(lambda: create_with(server, **nowhere))


def source(uri, kind, compression, **more):
    described = {"S3Uri": uri, "S3DataType": kind, "CompressionType": compression, **more}
    return {"ModelDataUrl": None, "ModelDataSource": {"S3DataSource": described}}


@pytest.mark.parametrize(
    "given",
    [
        source(DATA, "S3Object", "Gzip"),
        source(DATA, "S3Object", "None"),
        source("s3://bucket/many/", "S3Prefix", "None"),
        source(DATA, "S3Object", "Gzip", ModelAccessConfig={"AcceptEula": True}),
    ],
)
def test_model_data_source(server, given):
    create_with(server, **given)
    container = server.DescribeModel(ModelName="m")["PrimaryContainer"]
    assert container["ModelDataSource"] == given["ModelDataSource"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (source("s3://bucket/none/", "S3Prefix", "None"), "Could not access model data"),
        (source("s3://bucket/many", "S3Prefix", "None"), "with a slash at its end"),
        (source("s3://bucket/many/", "S3Prefix", "Gzip"), "Gzip needs S3DataType S3Object"),
        (source(DATA, "S3Object", "Gzip", ManifestS3Uri=DATA), "Not implemented by Sagehen yet"),
        ({"ModelDataUrl": None, "ModelDataSource": {}}, "needs an S3DataSource"),
        (source(DATA, "S3Object", "Gzip") | {"Mode": "MultiModel"}, "cannot be used"),
        (source(DATA, "S3Object", "Gzip") | {"ModelDataUrl": DATA}, "only one of"),
    ],
)
def test_model_data_source_that_cannot_be(server, refusal, given, said):
    assert said in refusal(lambda: create_with(server, **given))


def test_environment_is_bounded(server, refusal):
    fits = {f"K{i:02}": "v" * 1021 for i in range(32)}
    create_with(server, Environment=fits)
    server.DeleteModel(ModelName="m")
    assert "32768" in refusal(lambda: create_with(server, Environment={**fits, "X": ""}))


@pytest.mark.parametrize(
    ("members", "feature"),
    [
        ({"PrimaryContainer": {"ModelPackageName": "p"}}, "ModelPackageName"),
        (
            {"PrimaryContainer": {"Image": XGBOOST, "AdditionalModelDataSources": [{}]}},
            "AdditionalModelDataSources",
        ),
    ],
)
def test_what_is_not_built_is_refused_by_name(server, refusal, members, feature):
    said = refusal(lambda: create(server, **members))
    assert said.startswith("Not implemented by Sagehen yet: ")
    assert feature in said


def test_list(server):
    for name in ("one", "two", "three"):
        create(server, name)
        server.clock.seconds += 1
    page = server.ListModels(MaxResults=2)
    assert [one["ModelName"] for one in page["Models"]] == ["three", "two"]
    assert set(page["Models"][0]) == {"ModelName", "ModelArn", "CreationTime"}
    page = server.ListModels(MaxResults=2, NextToken=page["NextToken"])
    assert [one["ModelName"] for one in page["Models"]] == ["one"]
    assert "NextToken" not in page


@pytest.mark.parametrize("token", ["", "no!", "bm9uc2Vuc2U=", "W10="])
def test_list_with_a_bad_token(server, refusal, token):
    assert "Invalid pagination token" in refusal(lambda: server.ListModels(NextToken=token))
