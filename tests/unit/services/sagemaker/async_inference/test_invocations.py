"""What InvokeEndpointAsync takes. botocore sends nearly everything: it is refused here."""

import uuid

import pytest

from sagehen.services.sagemaker.async_inference.invocations import (
    endpoint_in_path,
    ordered_id,
    read_parameters,
)
from sagehen.wire.errors import AwsError

PREFIX = "x-amzn-sagemaker-"


def headers(**given):
    given.setdefault("inputlocation", "s3://bucket/in.csv")
    return {
        PREFIX + name.replace("_", "-"): value for name, value in given.items() if value is not None
    }


def refusal(body=b"", name="e", **given):
    with pytest.raises(AwsError) as caught:
        read_parameters(name, headers(**given), body)
    assert (caught.value.code, caught.value.status) == ("ValidationError", 400)
    return caught.value.message


def test_everything_that_can_be_said():
    given = headers(
        content_type="text/csv",
        accept="application/json",
        custom_attributes="a=b",
        inference_id="one two",
        s3outputpathextension="a/b",
        filename="x.json",
        requestttlseconds="60",
        invocationtimeoutseconds="3600",
    )
    assert read_parameters("e", given, b"") == {
        "EndpointName": "e",
        "ContentType": "text/csv",
        "Accept": "application/json",
        "CustomAttributes": "a=b",
        "InferenceId": "one two",
        "InputLocation": "s3://bucket/in.csv",
        "S3OutputPathExtension": "a/b",
        "Filename": "x.json",
        "RequestTTLSeconds": 60,
        "InvocationTimeoutSeconds": 3600,
    }


def test_other_headers_say_nothing():
    given = {**headers(), "content-type": "text/csv", "x-amzn-sagemaker-target-model": "m"}
    assert read_parameters("e", given, b"") == {
        "EndpointName": "e",
        "InputLocation": "s3://bucket/in.csv",
    }


def test_an_inline_body():
    body = bytes(128_000)
    assert read_parameters("e", headers(inputlocation=None), body)["Body"] == body


def test_either_a_body_or_an_input_location():
    assert refusal(b"1").endswith("this request has both.")
    assert refusal(inputlocation=None).endswith("this request has neither.")


@pytest.mark.parametrize(
    "given",
    ["x", "../../etc/passwd", "a b  c", "a/b", "..", "é", "漢"],
)
def test_an_inference_id_may_be_nearly_anything(given):
    sent = given.encode().decode("latin-1")
    assert read_parameters("e", headers(inference_id=sent), b"")["InferenceId"] == given


@pytest.mark.parametrize(
    ("member", "value", "wanted"),
    [
        ("inferenceId", "", "length greater than or equal to 1"),
        ("inferenceId", "x" * 65, "length less than or equal to 64"),
        ("inferenceId", " x", "regular expression pattern"),
        ("inferenceId", "x\u00c3\u00a9", "regular expression pattern"),
        ("inferenceId", "x\ty", "regular expression pattern"),
        ("inputLocation", "", "length greater than or equal to 1"),
        ("inputLocation", "s3://" + "b" * 1020, "length less than or equal to 1024"),
        ("inputLocation", "http://bucket/key", "regular expression pattern"),
        ("inputLocation", "bucket/key", "regular expression pattern"),
        ("inputLocation", "s3:///key", "regular expression pattern"),
        ("s3OutputPathExtension", "", "length greater than or equal to 1"),
        ("s3OutputPathExtension", "x" * 513, "length less than or equal to 512"),
        ("s3OutputPathExtension", "s3:x", "regular expression pattern"),
        ("s3OutputPathExtension", "a b", "regular expression pattern"),
        ("s3OutputPathExtension", "a?b", "regular expression pattern"),
        ("filename", "", "length greater than or equal to 1"),
        ("filename", "x" * 33, "length less than or equal to 32"),
        ("filename", "a/b", "regular expression pattern"),
        ("filename", "../x", "regular expression pattern"),
        ("filename", "a.b.c", "regular expression pattern"),
        ("filename", ".a", "regular expression pattern"),
        ("filename", "-a", "regular expression pattern"),
        ("requestTTLSeconds", "59", "value greater than or equal to 60"),
        ("requestTTLSeconds", "21601", "value less than or equal to 21600"),
        ("requestTTLSeconds", "-60", "value greater than or equal to 60"),
        ("invocationTimeoutSeconds", "0", "value greater than or equal to 1"),
        ("invocationTimeoutSeconds", "3601", "value less than or equal to 3600"),
        ("contentType", "x" * 1025, "length less than or equal to 1024"),
        ("contentType", "text/\u00c3\u00a9", "regular expression pattern"),
        ("accept", "x" * 1025, "length less than or equal to 1024"),
        ("customAttributes", "x" * 1025, "length less than or equal to 1024"),
        ("customAttributes", "\u00c3\u00a9", "regular expression pattern"),
    ],
)
def test_values_that_the_model_does_not_allow(member, value, wanted):
    header = {
        "inferenceId": "inference_id",
        "contentType": "content_type",
        "customAttributes": "custom_attributes",
    }.get(member, member.lower())
    said = refusal(**{header: value})
    assert f"at '{member}' failed to satisfy constraint: " in said
    assert wanted in said


@pytest.mark.parametrize("header", ["requestttlseconds", "invocationtimeoutseconds"])
@pytest.mark.parametrize("value", ["", "sixty", "60.5", "0x60", "9" * 30])
def test_times_that_are_no_whole_numbers(header, value):
    assert "cannot be read" in refusal(**{header: value})


@pytest.mark.parametrize(
    "given", ["s3://bucket", "s3://bucket/", "https://example.org/key", "https://s3.x/bucket"]
)
def test_inputs_that_are_no_objects(given):
    said = refusal(inputlocation=given)
    assert said == f"InputLocation {given} is not the address of an object in S3: s3://bucket/key."


@pytest.mark.parametrize("given", ["..", "a/../b", "./a", "a/."])
def test_extensions_that_walk(given):
    assert "must not have the segments" in refusal(s3outputpathextension=given)


@pytest.mark.parametrize("given", ["a..b", "...", "a/b.c/d"])
def test_extensions_with_dots_that_do_not(given):
    params = read_parameters("e", headers(s3outputpathextension=given), b"")
    assert params["S3OutputPathExtension"] == given


def test_what_cannot_be_an_endpoint():
    assert "at 'endpointName'" in refusal(name="no_name")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/endpoints/e/async-invocations", "e"),
        ("/endpoints/a%2Fb/async-invocations", "a/b"),
        ("/endpoints/e/invocations", None),
        ("/endpoints//async-invocations", None),
        ("/endpoints/a/b/async-invocations", None),
        ("/endpoints/e/async-invocations/", None),
        ("/endpoints/async-invocations", None),
        ("/bucket/endpoints/e/async-invocations", None),
    ],
)
def test_the_endpoint_in_a_path(path, name):
    assert endpoint_in_path(path) == name


def test_an_id_is_a_uuid_of_version_7_with_its_time():
    made = uuid.UUID(ordered_id(1_700_000_000.123))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_later_ids_sort_after_earlier_ones():
    made = [ordered_id(1_700_000_000 + number / 1000) for number in range(50)]
    assert made == sorted(made)


def test_no_two_ids_of_one_moment_are_alike():
    assert len({ordered_id(5.0) for _ in range(1000)}) == 1000
