"""What a request may say besides its type, and what becomes of it in CreateTrainingJob."""

import pytest

from sagehen.frame import tags
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.tables import OBJECTS
from sagehen.wire.errors import AwsError


def definition(house, name):
    return house.training(name).definition


def refusal(house, **options):
    answered = house.post({"type": "model_a", **options})
    assert (answered.status, answered.body["status"]) == (501, 501), answered.body
    return answered.body["errMsg"]


def test_an_input_in_the_service_s_bucket(house):
    draft = house.objects.draft()
    draft.write(b"x")
    house.objects.put("bucket", "in/text.txt", draft, Attributes())
    name = house.start(input="s3://bucket/in/")
    channel = definition(house, name)["InputDataConfig"][0]
    assert channel["ChannelName"] == "input"
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/in/"


@pytest.mark.parametrize(
    ("given", "key", "data", "content_type"),
    [
        ("one line\n", "input.txt", b"one line\n", "text/plain; charset=utf-8"),
        ("", "input.txt", b"", "text/plain; charset=utf-8"),
        ({"a": ["ü", 1]}, "input.json", '{"a": ["ü", 1]}'.encode(), "application/json"),
        ([], "input.json", b"[]", "application/json"),
        ("x" * 100_000, "input.txt", b"x" * 100_000, "text/plain; charset=utf-8"),
    ],
    ids=["text", "empty", "object", "list", "large"],
)
def test_an_input_that_comes_along(house, given, key, data, content_type):
    name = house.start(input=given)
    folder = f"s3://bucket/input/{name}/"
    source = definition(house, name)["InputDataConfig"][0]["DataSource"]["S3DataSource"]
    assert source["S3Uri"] == folder
    with house.objects.open("bucket", f"input/{name}/{key}") as found:
        assert b"".join(found.chunks()) == data
        assert found.info.attributes.headers["content-type"] == content_type


@pytest.mark.parametrize("size", [10, 100_000])
def test_of_a_refused_request_no_input_is_left(house, size):
    house.start()
    assert house.post({"type": "model_a", "input": "x" * size}).status == 502
    house.breaks = AwsError("ResourceInUse", "No.", 400)
    assert house.post({"type": "model-b", "input": "x" * size}).status == 500
    with house.database.read() as connection:
        assert connection.execute(OBJECTS.select()).all() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (1, "input must be"),
        (True, "input must be"),
        ("s3://other/x", "input must begin with s3://bucket/"),
        ("s3://bucket", "input must begin with s3://bucket/"),
        ("s3://bucket/none", "No S3 objects found"),
        ("s3://bucket/" + "x" * 1024, "1024 characters"),
        ("s3://bucket/\ud800", "surrogate"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_bad_input(house, given, said):
    assert said in refusal(house, input=given)


def test_more_places_may_be_allowed(make_house):
    house = make_house(allowed_inputs="s3://other/here/")
    assert "s3://other/here/" in refusal(house, input="s3://bucket/x")
    assert "No S3 objects found" in refusal(house, input="s3://other/here/x")


def test_parameters_become_texts(house):
    given = {"a": "b", "count": 3, "rate": 0.5, "on": True, "off": False, "long": "x" * 2500}
    parameters = definition(house, house.start(parameters=given))["HyperParameters"]
    assert parameters == given | {"count": "3", "rate": "0.5", "on": "true", "off": "false"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a=b", "must be an object"),
        ({"a": None}, "parameters.a must be"),
        ({"a": {"b": 1}}, "parameters.a must be"),
        ({"a": []}, "parameters.a must be"),
        ({"": "b"}, "1 to 256"),
        ({"x" * 257: "b"}, "1 to 256"),
        ({"a\0": "b"}, "printable"),
        ({"a": "x" * 2501}, "2500 characters"),
        ({"a": "two\nlines"}, "one line"),
        ({"a": "\0"}, "one line"),
        ({"a": "\ud800"}, "surrogate"),
        ({str(number): 1 for number in range(101)}, "100 entries"),
        ({"sagemaker_program": "mine.py"}, "begins with sagemaker_"),
    ],
    ids=lambda given: str(given)[:24],
)
def test_bad_parameters(house, given, said):
    assert said in refusal(house, parameters=given)


def test_a_type_s_own_parameters_are_not_the_caller_s(make_house):
    house = make_house(types={"model_a": {"hyperparameters": {"depth": "1", "a": "b"}}})
    assert "may not have depth" in refusal(house, parameters={"depth": "2"})
    assert "98 entries" in refusal(house, parameters={f"p{n}": 1 for n in range(99)})


def test_instances_within_bounds(make_house):
    house = make_house(
        instance_type="ml.m5.large",
        allowed_instance_types="ml.m5.xlarge, ml.c5.xlarge",
        max_instance_count=2,
        limit=3,
    )
    name = house.start(instance_type="ml.c5.xlarge", instance_count=2, spot=True)
    made = definition(house, name)
    assert made["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"
    assert made["ResourceConfig"]["InstanceCount"] == 2
    assert made["EnableManagedSpotTraining"] is True
    assert "ml.m5.large, ml.m5.xlarge, ml.c5.xlarge" in refusal(
        house, instance_type="ml.p3.2xlarge"
    )
    for count in (0, 3, -1, True, "1", 1.0):
        assert "from 1 to 2" in refusal(house, instance_count=count)
    assert "true or false" in refusal(house, spot="yes")
    assert "one of" in refusal(house, instance_type=["ml.m5.large"])


def test_null_is_as_if_it_were_not_there(make_house):
    house = make_house(limit=2)
    nothing = dict.fromkeys(("input", "parameters", "instance_type", "instance_count", "spot"))
    unlike = {"TrainingJobName", "CheckpointConfig"}
    plain, given = (definition(house, house.start(**body)) for body in ({}, nothing))
    assert {key: given[key] for key in given.keys() - unlike} == {
        key: plain[key] for key in plain.keys() - unlike
    }


def test_the_fixed_channel(make_house):
    house = make_house(data_uri="s3://bucket/data/")
    assert "No S3 objects found" in house.post({"type": "model_a"}).body["errMsg"]
    draft = house.objects.draft()
    draft.write(b"x")
    house.objects.put("bucket", "data/all.csv", draft, Attributes())
    channels = definition(house, house.start(input="x"))["InputDataConfig"]
    assert [one["ChannelName"] for one in channels] == ["training-data", "input"]


def test_tags_have_the_type_as_it_was_asked_for(house):
    name = house.start()
    with house.database.read() as connection:
        found = tags.get(connection, house.training(name).arn)
    assert found == {"sagehen:inference-service": "dev", "sagehen:inference-type": "model_a"}
