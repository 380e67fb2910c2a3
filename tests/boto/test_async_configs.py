"""AsyncInferenceConfig with a real boto3 client: what is refused, described and scaled."""

import pytest
from botocore.exceptions import ClientError

from support.asynchronous import AsyncEndpoint

TOPIC = "arn:aws:sns:us-east-1:000000000000:nobody"
OUT = {"S3OutputPath": "s3://answers/out"}


@pytest.fixture(scope="module")
def create(deploy):
    """`create(OutputConfig, ClientConfig)` makes an endpoint config; its name."""
    deploy.model("async-configs")
    made = []

    def attempt(output, client=None):
        made.append(f"async-configs-{len(made)}")
        config = {"OutputConfig": output}
        if client is not None:
            config["ClientConfig"] = client
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": "async-configs",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        deploy.sagemaker.create_endpoint_config(
            EndpointConfigName=made[-1],
            ProductionVariants=[variant],
            AsyncInferenceConfig=config,
        )
        return made[-1]

    return attempt


def refusal(create, *config):
    with pytest.raises(ClientError) as caught:
        create(*config)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


def test_everything_that_can_be_said_is_described(deploy, create):
    output = {
        "KmsKeyId": "alias/key",
        "S3OutputPath": "https://answers.s3.us-east-1.amazonaws.com/out/",
        "S3FailurePath": "s3://answers",
        "NotificationConfig": {
            "SuccessTopic": TOPIC,
            "ErrorTopic": TOPIC,
            "IncludeInferenceResponseIn": [
                "SUCCESS_NOTIFICATION_TOPIC",
                "ERROR_NOTIFICATION_TOPIC",
            ],
        },
    }
    client = {"MaxConcurrentInvocationsPerInstance": 1000}
    name = create(output, client)
    described = deploy.sagemaker.describe_endpoint_config(EndpointConfigName=name)
    assert described["AsyncInferenceConfig"] == {"ClientConfig": client, "OutputConfig": output}


def test_nothing_needs_to_be_said(deploy, create):
    name = create({})
    described = deploy.sagemaker.describe_endpoint_config(EndpointConfigName=name)
    assert described["AsyncInferenceConfig"] == {"OutputConfig": {}}


@pytest.mark.parametrize(
    ("output", "where"),
    [
        ({"S3OutputPath": "http://answers/out"}, "s3OutputPath"),
        ({"S3OutputPath": "answers/out"}, "s3OutputPath"),
        ({"S3OutputPath": ""}, "s3OutputPath"),
        ({"S3OutputPath": "s3:///out"}, "s3OutputPath"),
        ({"S3OutputPath": "s3://answers/" + "x" * 500}, "s3OutputPath"),
        ({**OUT, "S3FailurePath": "ftp://answers/out"}, "s3FailurePath"),
        ({**OUT, "S3FailurePath": "s3://answers/" + "x" * 500}, "s3FailurePath"),
        ({**OUT, "KmsKeyId": "no key"}, "kmsKeyId"),
        ({**OUT, "KmsKeyId": "x" * 2049}, "kmsKeyId"),
        ({**OUT, "NotificationConfig": {"SuccessTopic": "nobody"}}, "successTopic"),
        (
            {**OUT, "NotificationConfig": {"ErrorTopic": TOPIC.replace("0" * 12, "1")}},
            "errorTopic",
        ),
        (
            {**OUT, "NotificationConfig": {"ErrorTopic": "arn:aws:sqs:us-east-1:000000000000:q"}},
            "errorTopic",
        ),
        (
            {**OUT, "NotificationConfig": {"IncludeInferenceResponseIn": ["EVERYWHERE"]}},
            "includeInferenceResponseIn",
        ),
        (
            {
                **OUT,
                "NotificationConfig": {
                    "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"] * 3
                },
            },
            "includeInferenceResponseIn",
        ),
    ],
)
def test_outputs_that_the_model_does_not_allow(create, output, where):
    said = refusal(create, output)
    assert said.startswith("1 validation error detected: Value ")
    assert where in said


@pytest.mark.parametrize("count", [-1, 0, 1001])
def test_concurrency_has_bounds(create, count):
    if count >= 1:  # botocore knows the lower one.
        said = refusal(create, OUT, {"MaxConcurrentInvocationsPerInstance": count})
        assert "less than or equal to 1000" in said
    else:
        with pytest.raises(Exception, match="valid min value: 1"):
            create(OUT, {"MaxConcurrentInvocationsPerInstance": count})


def test_paths_elsewhere_are_no_place_in_s3(create):
    assert "is not an address in S3" in refusal(create, {"S3OutputPath": "https://example.org/out"})


def test_a_topic_that_is_missing_fails_the_endpoint_by_name(deploy):
    notification = {"NotificationConfig": {"SuccessTopic": TOPIC}}
    endpoint = AsyncEndpoint(deploy, "async-no-topic", **notification)
    assert endpoint.described["EndpointStatus"] == "Failed"
    assert TOPIC in endpoint.described["FailureReason"]
    deploy.sagemaker.delete_endpoint(EndpointName="async-no-topic")


@pytest.fixture(scope="module")
def endpoint(deploy):
    endpoint = AsyncEndpoint(deploy, "async-counts")
    assert endpoint.described["EndpointStatus"] == "InService"
    return endpoint


def test_an_endpoint_is_described_with_it(endpoint):
    config = endpoint.described["AsyncInferenceConfig"]
    assert config["OutputConfig"] == {"S3OutputPath": "s3://answers/async-counts/out"}


def counts(endpoint):
    described = endpoint.deploy.sagemaker.describe_endpoint(EndpointName=endpoint.name)
    (variant,) = described["ProductionVariants"]
    assert described["EndpointStatus"] == "InService"
    return variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]


def test_it_has_no_instances_takes_requests_and_works_on_them_when_it_has(endpoint):
    endpoint.scale(0)
    assert counts(endpoint) == (0, 0)
    waiting = endpoint.invoke(InferenceId="early")
    assert endpoint.request("early")["state"] == "QUEUED"
    endpoint.scale(1)
    assert counts(endpoint) == (1, 1)
    assert endpoint.ended("early")["state"] == "SUCCEEDED"
    assert endpoint.read(waiting["OutputLocation"]) == b"[2.0, 4.0]"


def test_a_real_time_endpoint_keeps_an_instance(deploy):
    deploy.endpoint("async-real-time")
    with pytest.raises(ClientError, match="only asynchronous endpoints may have none"):
        deploy.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="async-real-time",
            DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}],
        )


def test_each_kind_of_endpoint_refuses_the_others_calls(deploy, endpoint):
    runtime = deploy.runtime
    for call in (runtime.invoke_endpoint, runtime.invoke_endpoint_with_response_stream):
        with pytest.raises(runtime.exceptions.ValidationError, match="Call InvokeEndpointAsync"):
            call(EndpointName=endpoint.name, Body=b"[1]")
    deploy.endpoint("async-other-kind")
    with pytest.raises(runtime.exceptions.ValidationError, match=r"Call InvokeEndpoint\."):
        runtime.invoke_endpoint_async(EndpointName="async-other-kind", Body=b"[1]")
