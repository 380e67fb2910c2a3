"""Tags of models, configs and endpoints."""

import pytest


def tag(key: str, value: str = "v") -> dict[str, str]:
    return {"Key": key, "Value": value}


@pytest.fixture
def arn(server) -> str:
    server.model("Tagged")
    return "arn:aws:sagemaker:us-east-1:000000000000:model/tagged"


def test_add_overwrites_by_key_and_answers_all(server, arn):
    assert server.AddTags(ResourceArn=arn, Tags=[tag("b"), tag("a", "")]) == {
        "Tags": [tag("a", ""), tag("b")]
    }
    everything = [tag("a", "new"), tag("b"), tag("c")]
    assert server.AddTags(ResourceArn=arn, Tags=[tag("a", "new"), tag("c")])["Tags"] == everything
    assert server.ListTags(ResourceArn=arn) == {"Tags": everything}


def test_delete_passes_over_what_is_not_there(server, arn):
    server.AddTags(ResourceArn=arn, Tags=[tag("a"), tag("b")])
    assert server.DeleteTags(ResourceArn=arn, TagKeys=["a", "never"]) == {}
    assert server.ListTags(ResourceArn=arn) == {"Tags": [tag("b")]}


def test_every_kind_of_resource(server, arn):
    server.model()
    server.config("c")
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c", Tags=[tag("x")])
    base = "arn:aws:sagemaker:us-east-1:000000000000:"
    server.AddTags(ResourceArn=base + "endpoint-config/c", Tags=[tag("y")])
    assert server.ListTags(ResourceArn=base + "endpoint/e") == {"Tags": [tag("x")]}
    assert server.ListTags(ResourceArn=base + "endpoint-config/C") == {"Tags": [tag("y")]}


def test_at_most_fifty(server, arn, refusal):
    server.AddTags(ResourceArn=arn, Tags=[tag(f"k{i}") for i in range(50)])
    server.AddTags(ResourceArn=arn, Tags=[tag("k0", "again")])
    assert "50" in refusal(lambda: server.AddTags(ResourceArn=arn, Tags=[tag("one-more")]))
    assert len(server.ListTags(ResourceArn=arn)["Tags"]) == 50


@pytest.mark.parametrize("tags", [[tag("aws:mine")], [tag("AWS:x")], [tag("a"), tag("a", "w")]])
def test_bad_keys(server, arn, refusal, tags):
    assert refusal(lambda: server.AddTags(ResourceArn=arn, Tags=tags))
    assert refusal(
        lambda: server.CreateModel(ModelName="x", PrimaryContainer={"Image": "xgboost"}, Tags=tags)
    )
    assert server.ListTags(ResourceArn=arn) == {"Tags": []}


@pytest.mark.parametrize(
    ("arn", "said"),
    [
        ("arn:aws:sagemaker:us-east-1:000000000000:model/none", "Could not find model"),
        ("arn:aws:sagemaker:eu-west-1:000000000000:model/tagged", "Could not find model"),
        ("arn:aws:sagemaker:us-east-1:111111111111:model/tagged", "Could not find model"),
        ("arn:aws:sagemaker:us-east-1:000000000000:endpoint/tagged", "Could not find endpoint"),
        ("arn:aws:sagemaker:us-east-1:000000000000:transform-job/tagged", "Could not find"),
        ("arn:aws:sagemaker:us-east-1:000000000000:processing-job/tagged", "can be tagged"),
        ("arn:aws:s3:::bucket-of-somebody", "can be tagged"),
    ],
)
def test_resource_must_exist(server, refusal, arn, said):
    server.model("tagged")
    for act in (
        lambda: server.AddTags(ResourceArn=arn, Tags=[tag("a")]),
        lambda: server.ListTags(ResourceArn=arn),
        lambda: server.DeleteTags(ResourceArn=arn, TagKeys=["a"]),
    ):
        assert said in refusal(act)


def test_no_token_was_ever_given(server, arn, refusal):
    said = refusal(lambda: server.ListTags(ResourceArn=arn, NextToken="x"))
    assert said == "Invalid pagination token."
