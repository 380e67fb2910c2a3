"""Asynchronous endpoints with the unmodified SageMaker Python SDK, version 2."""

import base64
import json
import threading
import uuid

import pytest

from support.deploy import IMAGE, ROLE, Deployer
from support.plain_http import ask

BUCKET = "sdk-async"
# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def session(sdk):

    return sdk.Session(default_bucket=BUCKET)


@pytest.fixture(scope="module")
def queue(aws):
    """The URL of a queue that gets what two topics, `sdk-ok` and `sdk-bad`, are told."""
    sns, sqs = aws.client("sns"), aws.client("sqs")
    url = sqs.create_queue(QueueName="sdk-results")["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    for name in ("sdk-ok", "sdk-bad"):
        sns.subscribe(
            TopicArn=sns.create_topic(Name=name)["TopicArn"],
            Protocol="sqs",
            Endpoint=asked["Attributes"]["QueueArn"],
            Attributes={"RawMessageDelivery": "true"},
        )
    return url


@pytest.fixture(scope="module")
def make_model(sdk, session, aws):
    def make():
        aws.client("s3").create_bucket(Bucket=BUCKET)
        return sdk.model.Model(
            image_uri=IMAGE,
            model_data=Deployer(aws).upload("sdk-async/model.tar.gz"),
            role=ROLE,
            predictor_cls=sdk.predictor.Predictor,
            sagemaker_session=session,
        )

    return make


@pytest.fixture(scope="module")
def predictor(sdk, session, make_model, queue):
    """Of one endpoint in service. Left to wait by itself, deploy() looks after 30 s first."""
    topics = "arn:aws:sns:us-east-1:000000000000:sdk"
    predictor = make_model().deploy(
        initial_instance_count=1,
        instance_type="ml.m5.large",
        serializer=sdk.serializers.JSONSerializer(),
        deserializer=sdk.deserializers.JSONDeserializer(),
        wait=False,
        async_inference_config=sdk.async_inference.AsyncInferenceConfig(
            output_path=f"s3://{BUCKET}/out",
            failure_path=f"s3://{BUCKET}/failed",
            max_concurrent_invocations_per_instance=4,
            notification_config={
                "SuccessTopic": f"{topics}-ok",
                "ErrorTopic": f"{topics}-bad",
                "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"],
            },
        ),
    )
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    return predictor


@pytest.fixture(scope="module")
def text_predictor(sdk, session, predictor):
    """Another for the same endpoint, made without a name; its answers are text."""
    plain = sdk.predictor.Predictor(
        predictor.endpoint_name,
        session,
        serializer=sdk.serializers.JSONSerializer(),
        deserializer=sdk.deserializers.StringDeserializer(),
    )
    return sdk.predictor_async.AsyncPredictor(plain)


@pytest.fixture
def waits(sdk):
    """What to wait by: long enough for a busy machine."""
    return sdk.async_inference.WaiterConfig(max_attempts=1200, delay=0.1)


@pytest.fixture
def promised(aws):
    """A name for the answer to be. The SDK goes on looking for the one of output and failure that
    does not come, in a thread that nothing ends: this does."""
    name = uuid.uuid4().hex[:16]
    yield {"Filename": f"{name}.out"}
    for key in (f"out/{name}.out", f"failed/{name}-error.out"):
        aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"")
    for thread in threading.enumerate():
        if "(check_" in thread.name:
            thread.join(120)


def notice(aws, queue, inference_id):
    """What the queue was told of that request."""
    sqs = aws.client("sqs")
    while True:
        answer = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20, MaxNumberOfMessages=10)
        told = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        for one in told:
            if one.get("inferenceId") == inference_id:
                return one


def set_queue(server, endpoint_name, verb):
    url = f"{server.url}/_sagehen/async/{endpoint_name}/{verb}"
    assert ask(url, headers=server.bearer, method="POST").status == 200


def test_deploy_makes_an_asynchronous_endpoint(predictor, sdk, aws):
    assert isinstance(predictor, sdk.predictor_async.AsyncPredictor)
    described = aws.client("sagemaker").describe_endpoint(EndpointName=predictor.endpoint_name)
    told = described["AsyncInferenceConfig"]
    assert told["ClientConfig"] == {"MaxConcurrentInvocationsPerInstance": 4}
    assert told["OutputConfig"]["S3FailurePath"] == f"s3://{BUCKET}/failed"
    assert set(told["OutputConfig"]["NotificationConfig"]) == {
        "SuccessTopic",
        "ErrorTopic",
        "IncludeInferenceResponseIn",
    }


def test_predict_waits_for_the_answer(predictor, waits, promised, aws, queue):
    # The SDK names the ContentType when it uploads the input, and not when it invokes.
    answer = predictor.predict([1, 2], None, promised, "doubled", waits)
    assert answer == [2, 4]
    told = notice(aws, queue, "doubled")
    assert told["invocationStatus"] == "Completed"
    assert told["requestParameters"]["endpointName"] == predictor.endpoint_name
    assert told["responseParameters"]["outputLocation"].endswith(promised["Filename"])
    assert json.loads(base64.b64decode(told["responseBody"]["content"])) == [2, 4]


def test_a_result_that_is_not_there_yet(predictor, sdk, server, wait_until):
    errors = sdk.exceptions
    impatient = sdk.async_inference.WaiterConfig(max_attempts=1, delay=0)
    set_queue(server, predictor.endpoint_name, "pause")
    answer = predictor.predict_async([3], inference_id="mine")
    assert answer.output_path.startswith(f"s3://{BUCKET}/out/")
    assert answer.failure_path.startswith(f"s3://{BUCKET}/failed/")
    with pytest.raises(errors.ObjectNotExistedError, match="could still be running"):
        answer.get_result()
    with pytest.raises(errors.PollingTimeoutError, match="could still be running"):
        answer.get_result(impatient)
    set_queue(server, predictor.endpoint_name, "resume")

    def is_there():
        try:
            return answer.get_result() == [6]
        except errors.ObjectNotExistedError:
            return False

    wait_until(is_there)


def test_what_the_model_says_is_the_sdks_error(text_predictor, sdk, waits, promised, aws, queue):
    with pytest.raises(sdk.exceptions.AsyncInferenceModelError, match="unsupported operand"):
        text_predictor.predict({"a": 1}, None, promised, "no number", waits)
    told = notice(aws, queue, "no number")
    assert told["invocationStatus"] == "Failed"
    assert "responseBody" not in told


def test_a_failure_is_found_without_waiting_too(text_predictor, sdk, wait_until):
    answer = text_predictor.predict_async(input_path=f"s3://{BUCKET}/no-such-input")

    def has_failed():
        try:
            answer.get_result()
        except sdk.exceptions.ObjectNotExistedError:
            return False
        except sdk.exceptions.AsyncInferenceModelError as error:
            return "There is no object no-such-input" in str(error)
        raise AssertionError("It cannot have an answer.")

    wait_until(has_failed)
    with pytest.raises(sdk.exceptions.AsyncInferenceModelError, match="There is no object"):
        answer.get_result()


def test_an_update_keeps_what_is_asynchronous(predictor, session, aws, waits, promised):
    sagemaker = aws.client("sagemaker")
    before = sagemaker.describe_endpoint(EndpointName=predictor.endpoint_name)
    predictor.update_endpoint(initial_instance_count=2, instance_type="ml.m5.large", wait=False)
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    after = sagemaker.describe_endpoint(EndpointName=predictor.endpoint_name)
    assert after["EndpointConfigName"] != before["EndpointConfigName"]
    assert after["AsyncInferenceConfig"] == before["AsyncInferenceConfig"]
    assert after["ProductionVariants"][0]["CurrentInstanceCount"] == 2
    assert predictor.predict([4], initial_args=promised, waiter_config=waits) == [8]


def test_paths_that_nobody_named_are_in_the_default_bucket(sdk, session, make_model, aws):
    predictor = make_model().deploy(
        initial_instance_count=1,
        instance_type="ml.m5.large",
        wait=False,
        async_inference_config=sdk.async_inference.AsyncInferenceConfig(),
    )
    described = aws.client("sagemaker").describe_endpoint(EndpointName=predictor.endpoint_name)
    output = described["AsyncInferenceConfig"]["OutputConfig"]
    assert output["S3OutputPath"].startswith(f"s3://{BUCKET}/async-endpoint-outputs/")
    assert output["S3FailurePath"].startswith(f"s3://{BUCKET}/async-endpoint-failures/")
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    predictor.delete_endpoint()


def test_delete_leaves_nothing(predictor, aws, wait_until):
    sagemaker = aws.client("sagemaker")
    name = predictor.endpoint_name
    config = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
    predictor.delete_model()
    predictor.delete_endpoint()
    wait_until(lambda: not sagemaker.list_endpoints(NameContains=name)["Endpoints"])
    kept = sagemaker.list_endpoint_configs(NameContains=config)["EndpointConfigs"]
    assert config not in [one["EndpointConfigName"] for one in kept]
