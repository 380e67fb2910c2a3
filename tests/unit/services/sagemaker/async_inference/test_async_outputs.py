"""Names of outputs: promised with the 202, so nothing that a caller says may lead them astray."""

import pytest

from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference.intake import promise_output

HTTPS = "https://bucket.s3.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("path", "extension", "filename", "location"),
    [
        ("s3://bucket", None, None, "s3://bucket/id.out"),
        ("s3://bucket/", None, None, "s3://bucket/id.out"),
        ("s3://bucket/out", None, None, "s3://bucket/out/id.out"),
        ("s3://bucket/out/", None, None, "s3://bucket/out/id.out"),
        ("s3://bucket/out//", None, None, "s3://bucket/out//id.out"),
        ("s3://bucket/out", "a/b", None, "s3://bucket/out/a/b/id.out"),
        ("s3://bucket/out/", "/a/", None, "s3://bucket/out/a/id.out"),
        ("s3://bucket/out/", "/", None, "s3://bucket/out/id.out"),
        ("s3://bucket/out", None, "x.json", "s3://bucket/out/x.json"),
        ("s3://bucket/out", "a", "x", "s3://bucket/out/a/x"),
        (HTTPS, None, None, HTTPS + "/id.out"),
        (HTTPS + "/a%20b/", "c", "x.y", HTTPS + "/a%20b/c/x.y"),
    ],
)
def test_where_the_answer_will_be(path, extension, filename, location):
    output = promise_output(AsyncPlan(output_path=path), "id", extension, filename)
    assert (output.location, output.failure_location) == (location, None)


@pytest.mark.parametrize(
    ("extension", "filename", "location"),
    [
        (None, None, "s3://bucket/failed/id-error.out"),
        ("a", None, "s3://bucket/failed/a/id-error.out"),
        (None, "x.json", "s3://bucket/failed/x-error.json"),
        (None, "x", "s3://bucket/failed/x-error"),
        (None, "x.", "s3://bucket/failed/x-error."),
    ],
)
def test_where_a_failure_will_be(extension, filename, location):
    plan = AsyncPlan(output_path="s3://bucket/out", failure_path="s3://bucket/failed")
    assert promise_output(plan, "id", extension, filename).failure_location == location


def test_who_is_told_is_as_the_plan_has_it():
    plan = AsyncPlan(
        output_path="s3://bucket",
        success_topic="good",
        error_topic="bad",
        include_response_in=("SUCCESS_NOTIFICATION_TOPIC",),
    )
    output = promise_output(plan, "id")
    assert (output.success_topic, output.error_topic) == ("good", "bad")
    assert output.include_response_in == ("SUCCESS_NOTIFICATION_TOPIC",)
