"""AsyncInferenceConfig: what may be asked for, what is written for reconcile, how it is told."""

import pytest

from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.wire.errors import AwsError
from support.endpoints import ARN, in_service, settle, stored, weigh

TOPIC = "arn:aws:sns:us-east-1:000000000000:"
FULL = {
    "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 4},
    "OutputConfig": {
        "KmsKeyId": "key",
        "S3OutputPath": "s3://bucket/out",
        "S3FailurePath": "https://bucket.s3.us-east-1.amazonaws.com/failed/",
        "NotificationConfig": {
            "SuccessTopic": TOPIC + "good",
            "ErrorTopic": TOPIC + "bad",
            "IncludeInferenceResponseIn": ["ERROR_NOTIFICATION_TOPIC"],
        },
    },
}
PLAIN = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}


@pytest.fixture(autouse=True)
def model(server):
    server.model("m")
    server.configure(topics_required=False)


def asynchronous(server, name="c", config=PLAIN, **more):
    return server.config(name, AsyncInferenceConfig=config, **more)


def described(server):
    return server.DescribeEndpointConfig(EndpointConfigName="c")["AsyncInferenceConfig"]


def serving(server, config=PLAIN):
    """The endpoint `e`, in service with the asynchronous config `c`."""
    asynchronous(server, "c", config)
    in_service(server)


def test_it_is_described_as_it_was_given(server):
    asynchronous(server, "c", FULL)
    described = server.DescribeEndpointConfig(EndpointConfigName="c")
    assert described["AsyncInferenceConfig"] == FULL
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    assert server.DescribeEndpoint(EndpointName="e")["AsyncInferenceConfig"] == FULL
    settle(server)
    assert server.DescribeEndpoint(EndpointName="e")["AsyncInferenceConfig"] == FULL


def test_an_endpoint_has_none_unless_its_config_has(server):
    server.config("c")
    in_service(server)
    assert "AsyncInferenceConfig" not in server.DescribeEndpoint(EndpointName="e")
    assert stored(server).current.asynchronous is None


def test_what_is_written_for_the_dispatcher(server):
    serving(server, FULL)
    assert stored(server).current.asynchronous == AsyncPlan(
        output_path="s3://bucket/out",
        failure_path="https://bucket.s3.us-east-1.amazonaws.com/failed/",
        success_topic=TOPIC + "good",
        error_topic=TOPIC + "bad",
        include_response_in=("ERROR_NOTIFICATION_TOPIC",),
        max_concurrency=4,
    )


def test_without_a_path_outputs_go_to_the_sdks_default_bucket(server):
    serving(server, {"OutputConfig": {}})
    plan = stored(server).current.asynchronous
    assert plan == AsyncPlan(
        output_path="s3://sagemaker-us-east-1-000000000000/async-endpoint-outputs/e"
    )
    described = server.DescribeEndpoint(EndpointName="e")
    assert described["AsyncInferenceConfig"] == {"OutputConfig": {}}


def test_that_bucket_is_made_where_it_is_needed(server):
    asynchronous(server, "named")
    asynchronous(server, "unnamed", {"OutputConfig": {}})
    name = "sagemaker-us-east-1-000000000000"
    in_service(server, "a", "named")
    assert name not in [one.name for one in server.objects.buckets()]
    in_service(server, "b", "unnamed")
    in_service(server, "c", "unnamed")
    assert name in [one.name for one in server.objects.buckets()]


@pytest.mark.parametrize("member", ["S3OutputPath", "S3FailurePath"])
@pytest.mark.parametrize(
    "path",
    [
        "s3://No_Bucket/out",
        "s3://ab/out",
        "s3://127.0.0.1/out",
        "s3://bu..cket/out",
        "s3://bucket/a\nb",
        "s3://bucket/a\0b",
        "https://example.org/bucket/out",
        "https://s3.us-east-1.amazonaws.com/",
        "https://bucket.s3.amazonaws.com/out?versionId=1",
        "https://bucket.s3.amazonaws.com/out#end",
    ],
)
def test_paths_that_are_no_place_in_s3(server, refusal, member, path):
    config = {"OutputConfig": {"S3OutputPath": "s3://bucket/out", member: path}}
    said = refusal(lambda: asynchronous(server, "c", config))
    assert said.startswith(
        f"{member} {path!r} is not an address in S3. Give s3://bucket/prefix, or "
    )


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/a?b#c",
        "s3://bucket/übung",
        "https://bucket.s3.eu-west-1.amazonaws.com/out",
        "https://s3.eu-west-1.amazonaws.com/bucket",
    ],
)
def test_paths_that_are(server, path):
    asynchronous(server, "c", {"OutputConfig": {"S3OutputPath": path}})
    assert described(server) == {"OutputConfig": {"S3OutputPath": path}}


@pytest.mark.parametrize(
    ("more", "feature"),
    [
        ({"DataCaptureConfig": {"EnableCapture": True}}, "data capture"),
        ({"DataCaptureConfig": {"InitialSamplingPercentage": 100}}, "data capture"),
    ],
)
def test_what_goes_with_no_asynchronous_endpoint(server, refusal, more, feature):
    said = refusal(lambda: asynchronous(server, "c", **more))
    assert said.startswith(f"AsyncInferenceConfig is not supported with {feature}")


def test_serverless_variants_are_never_asynchronous(server, refusal):
    variant = server.variant(ServerlessConfig={"MemorySizeInMB": 1024, "MaxConcurrency": 1})
    said = refusal(lambda: server.config("c", variant, AsyncInferenceConfig=PLAIN))
    assert said.startswith("AsyncInferenceConfig is not supported with serverless inference")


def test_capture_that_is_switched_off_is_no_hindrance(server):
    capture = {
        "EnableCapture": False,
        "InitialSamplingPercentage": 1,
        "DestinationS3Uri": "s3://bucket/capture",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    asynchronous(server, "c", DataCaptureConfig=capture)
    assert described(server) == PLAIN


def many(server, name="many"):
    server.model(name, ModelDataUrl="s3://bucket/many/", Mode="MultiModel")


def test_models_that_no_asynchronous_endpoint_has(server, refusal):
    many(server)
    container = {"Image": "sagemaker-xgboost:1.7-1", "ModelDataUrl": "s3://bucket/model.tar.gz"}
    server.CreateModel(ModelName="two", Containers=[container, container])
    for name, kind in (("many", "multi-model endpoints"), ("two", "models of several containers")):
        variant = server.variant(ModelName=name)
        said = refusal(lambda v=variant: server.config("c", v, AsyncInferenceConfig=PLAIN))
        assert said == f"AsyncInferenceConfig is not supported with {kind} (model {name})."


def test_a_model_that_became_a_multi_model_since_is_noticed(server, refusal):
    asynchronous(server)
    server.DeleteModel(ModelName="m")
    many(server, "m")
    said = refusal(lambda: server.CreateEndpoint(EndpointName="e", EndpointConfigName="c"))
    assert said == "AsyncInferenceConfig is not supported with multi-model endpoints (model m)."


def test_an_update_makes_no_endpoint_asynchronous_or_the_reverse(server, refusal):
    server.config("plain")
    asynchronous(server)
    in_service(server, "real-time", "plain")
    in_service(server, "e", "c")
    said = refusal(lambda: server.UpdateEndpoint(EndpointName="real-time", EndpointConfigName="c"))
    assert said.startswith(f'Endpoint "{ARN}real-time" is not asynchronous, and an update cannot')
    said = refusal(lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="plain"))
    assert said.startswith(f'Endpoint "{ARN}e" is asynchronous, and an update cannot change that.')
    assert stored(server).status is EndpointStatus.IN_SERVICE


def test_an_update_brings_other_outputs(server):
    serving(server)
    asynchronous(server, "next", FULL)
    server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    assert server.DescribeEndpoint(EndpointName="e")["AsyncInferenceConfig"] == PLAIN
    settle(server)
    assert server.DescribeEndpoint(EndpointName="e")["AsyncInferenceConfig"] == FULL
    assert stored(server).current.asynchronous.success_topic == TOPIC + "good"


def to_zero(server):
    server.clock.seconds += 1  # Two changes of an endpoint are never at the same time.
    weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 0})
    settle(server)


def test_it_may_have_no_instances(server):
    serving(server)
    to_zero(server)
    (variant,) = server.DescribeEndpoint(EndpointName="e")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 0)
    weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 2})
    assert stored(server).target.variants[0].instance_count == 2


@pytest.mark.parametrize("retains", [True, False])
def test_an_update_from_no_instances(server, retains):
    serving(server)
    to_zero(server)
    asynchronous(server, "next")
    server.UpdateEndpoint(
        EndpointName="e", EndpointConfigName="next", RetainAllVariantProperties=retains
    )
    assert stored(server).target.variants[0].instance_count == (0 if retains else 1)


def test_none_count_as_no_capacity(server, refusal):
    server.configure(max_endpoint_instances=1)
    serving(server)
    to_zero(server)
    in_service(server, "other", "c")
    wanted = {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}
    with pytest.raises(AwsError, match="is 1 Instances, with current utilization of 1") as caught:
        weigh(server, wanted)
    assert caught.value.code == "ResourceLimitExceeded"
