"""The runtime's errors as boto3 raises them: class, status, members and SageMaker's own words."""

import contextlib
import json
import re
import shutil
import threading

import pytest
from botocore.exceptions import ClientError

from support.deploy import DOUBLE, loads_when, pack

ACCOUNT = "000000000000"
SCRIPT = """
import json, os, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(wish, model):
    if wish.get("dies"):
        os.kill(os.getppid(), 9)
    if "folder" in wish:
        Path(wish["folder"], "begun").touch()
        while not Path(wish["folder"], "go").exists():
            time.sleep(0.001)
    return wish

def output_fn(wish, accept, context):
    context.set_response_status(wish.get("status", 200))
    if "session" in wish:
        context.set_response_header(0, "X-Amzn-SageMaker-Session-Id", wish["session"])
    return wish.get("says", "")
"""


@pytest.fixture(scope="module")
def obliging(deploy):
    """An endpoint that does what the body wishes."""
    assert deploy.endpoint("obliging", SCRIPT)["EndpointStatus"] == "InService"
    return deploy


@pytest.fixture(scope="module")
def hasty(make_server, make_deployer):
    """The same on a server with little patience and little room."""
    server = make_server(
        gateways="1",
        invocation_timeout_seconds="3",
        max_queued_invocations="1",
        max_invocation_body_bytes="1000",
    )
    deployer = make_deployer(server)
    assert deployer.endpoint("obliging", SCRIPT)["EndpointStatus"] == "InService"
    return deployer


def ask(deployer, operation="invoke_endpoint", client=None, **given):
    """`wish`: what the body says; everything else is a parameter of the operation."""
    params = {"EndpointName": "obliging", "ContentType": "application/json", **given}
    params.setdefault("Body", json.dumps(params.pop("wish", {})))
    return getattr(client or deployer.runtime, operation)(**params)


def raised(deployer, name: str, **asked) -> dict:
    """The response of the error of this class that is raised, with the status of its model."""
    client = deployer.runtime
    with pytest.raises(ClientError) as caught:
        ask(deployer, **asked)
    answer = caught.value.response
    assert type(caught.value) is getattr(client.exceptions, name), answer
    assert answer["Error"]["Code"] == name
    shape = client.meta.service_model.shape_for_error_code(name)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == shape.metadata["error"]["httpStatusCode"]
    assert len(answer["ResponseMetadata"]["RequestId"]) == 36
    return answer


def check_model_error(answer: dict, status: int, original: str, message: str) -> None:
    """`message`: up to where it says where to look."""
    group = "/aws/sagemaker/Endpoints/obliging"
    where = (
        "See https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1"
        f"#logEventViewer:group={group} in account {ACCOUNT} for more information."
    )
    assert answer["Error"]["Message"] == f"{message} {where} Here: sagehen logs obliging"
    assert answer["Message"] == answer["Error"]["Message"]
    assert answer["OriginalStatusCode"] == status
    assert answer["OriginalMessage"] == original
    assert answer["LogStreamArn"] == f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{group}"


BOTH = pytest.mark.parametrize(
    "operation", ["invoke_endpoint", "invoke_endpoint_with_response_stream"]
)


@BOTH
@pytest.mark.parametrize(
    ("status", "side"), [(400, "client"), (415, "client"), (500, "server"), (503, "server")]
)
def test_a_container_s_error(obliging, operation, status, side):
    said = 'no "such" row — élan\n'
    wish = {"status": status, "says": said}
    answer = raised(obliging, "ModelError", operation=operation, wish=wish)
    message = f'Received {side} error ({status}) from primary with message "{said}".'
    check_model_error(answer, status, said, message)


def test_a_container_s_long_error(obliging):
    answer = raised(obliging, "ModelError", wish={"status": 500, "says": "x" * 20_000})
    kept = "x" * 16_384
    message = (
        f'Received server error (500) from primary with message "{kept}" and could not load the '
        "entire response body."
    )
    check_model_error(answer, 500, kept, message)


@BOTH
def test_a_container_that_takes_too_long(hasty, operation, gates):
    wish = {"folder": str(gates)}
    answer = raised(hasty, "ModelError", operation=operation, wish=wish)
    (gates / "go").touch()
    original = (
        "Your invocation timed out while waiting for a response from container primary. Review "
        "the latency metrics for each container in Amazon CloudWatch, resolve the issue, and try "
        "again."
    )
    message = f'Received server error (0) from primary with message "{original}".'
    check_model_error(answer, 0, original, message)


def test_a_call_that_hangs_does_not_hold_its_worker_longer(hasty, gates, wait_until):
    hasty.endpoint("hanging", SCRIPT, {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"})
    wish = {"folder": str(gates)}  # where nothing will tell it to go on
    answer = raised(hasty, "ModelError", EndpointName="hanging", wish=wish)
    assert "timed out" in answer["OriginalMessage"]
    wait_until(lambda: answers(hasty, "hanging"))


def answers(deployer, endpoint: str) -> bool:
    """False while the worker that follows is not there in time."""
    try:
        return bool(ask(deployer, EndpointName=endpoint)["ResponseMetadata"])
    except deployer.runtime.exceptions.ModelError:
        return False


@BOTH
def test_a_container_that_dies(obliging, operation, wait_until):
    answer = raised(obliging, "ModelError", operation=operation, wish={"dies": True})
    original = (
        "Amazon SageMaker could not get a response from the obliging endpoint. This can occur "
        "when CPU or memory utilization is high. To check your utilization, see Amazon "
        "CloudWatch. To fix this problem, use an instance type with more CPU capacity or memory."
    )
    message = f'Received server error (0) from model with message "{original}".'
    check_model_error(answer, 0, original, message)
    wait_until(lambda: serves(obliging))


def serves(deployer) -> bool:
    """False while there is no instance that takes a request; nothing else may be said then."""
    try:
        return bool(ask(deployer)["ResponseMetadata"])
    except deployer.runtime.exceptions.ServiceUnavailable:
        return False


COMPONENT = (
    "Inference Component Name header is not allowed for endpoints to which you dont plan to "
    "deploy inference components. Please remove the Inference Component Name header and try again."
)


@BOTH
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"EndpointName": "nobody"}, f"Endpoint nobody of account {ACCOUNT} not found."),
        ({"EndpointName": "Obliging"}, f"Endpoint Obliging of account {ACCOUNT} not found."),
        ({"InferenceComponentName": "part"}, COMPONENT),
        (
            {"TargetVariant": "Other"},
            "Endpoint obliging has no production variant Other. It has: AllTraffic.",
        ),
        (
            {"TargetContainerHostname": "second"},
            "Endpoint obliging is not configured for direct invocation and does not support "
            "target container hostname header.",
        ),
    ],
    ids=["endpoint", "case", "component", "variant", "container"],
)
def test_what_cannot_be_asked_for(obliging, operation, given, message):
    answer = raised(obliging, "ValidationError", operation=operation, **given)
    assert answer["Error"]["Message"] == message


@BOTH
def test_a_parameter_that_the_service_model_does_not_take(obliging, operation):
    answer = raised(obliging, "ValidationError", operation=operation, TargetVariant="a_b")
    shape = obliging.runtime.meta.service_model.shape_for("TargetVariantHeader")
    assert answer["Error"]["Message"] == (
        "1 validation error detected: Value 'a_b' at 'targetVariant' failed to satisfy "
        f"constraint: Member must satisfy regular expression pattern: {shape.metadata['pattern']}"
    )


def test_an_endpoint_that_does_not_serve_yet_or_any_more(deploy, gates, wait_until):
    script = (
        "import time\nfrom pathlib import Path\n"
        f"def model_fn(d):\n    while not Path({str(gates)!r}, 'go').exists():\n"
        "        time.sleep(0.001)\n"
        "def predict_fn(data, model):\n    raise ValueError('never')\n"
    )
    deploy.config("early", script)
    deploy.sagemaker.create_endpoint(EndpointName="early", EndpointConfigName="early")
    not_found = f"Endpoint early of account {ACCOUNT} not found."
    answer = raised(deploy, "ValidationError", EndpointName="early")
    assert answer["Error"]["Message"] == not_found
    (gates / "go").touch()
    assert deploy.settled("early")["EndpointStatus"] == "InService"
    raised(deploy, "ModelError", EndpointName="early")
    deploy.sagemaker.delete_endpoint(EndpointName="early")
    wait_until(lambda: not deploy.sagemaker.list_endpoints(NameContains="early")["Endpoints"])
    answer = raised(deploy, "ValidationError", EndpointName="early")
    assert answer["Error"]["Message"] == not_found


def test_a_multi_model_endpoint_without_a_target_model(hasty):
    hasty.multi_model("many")
    answer = raised(hasty, "ValidationError", EndpointName="many")
    request_id = answer["ResponseMetadata"]["RequestId"]
    message = f"Request {request_id} is missing a target model header"
    assert answer["Error"]["Message"].startswith(message)


def test_a_model_that_is_still_loading_goes_on_and_holds_up_no_other(hasty, gates, wait_until):
    hasty.multi_model("slow")
    gate = gates / "gate"
    for name, script in (("quick", DOUBLE), ("model", loads_when(gate, 2.0))):
        body = pack({"code/inference.py": script})
        hasty.s3.put_object(Bucket="many", Key=f"slow/{name}.tar.gz", Body=body)

    def target(name: str) -> dict:
        return {"EndpointName": "slow", "TargetModel": f"{name}.tar.gz", "Body": "[1]"}

    def answers(name: str) -> bool:
        errors = hasty.runtime.exceptions
        # What is loaded is not answered in time for that on every machine.
        with contextlib.suppress(errors.ModelNotReadyException, errors.ModelError):
            return ask(hasty, **target(name))["Body"].read() == b"[2.0]"
        return False

    wait_until(lambda: answers("quick"))
    answer = raised(hasty, "ModelNotReadyException", **target("model"))
    # In the words of the gateway or of the agent, whichever gives up first.
    assert re.match(r"Model model\.tar\.gz is .*still being loaded", answer["Error"]["Message"])
    wait_until(lambda: answers("quick"))
    gate.touch()
    wait_until(lambda: answers("model"))
    pattern = r'^sagehen_model_loading_time_microseconds_count\{.*"slow".*\} (\S+)$'

    def loads() -> list[float]:
        metrics = hasty.server.get("/_sagehen/metrics").decode()
        return [float(count) for count in re.findall(pattern, metrics, re.M)]

    wait_until(lambda: loads() == [2])  # left out where the agent does not answer in time


@BOTH
def test_a_body_that_is_too_large(hasty, operation):
    answer = raised(hasty, "ValidationError", operation=operation, Body=bytes(1001))
    request_id = answer["ResponseMetadata"]["RequestId"]
    assert answer["Error"]["Message"].startswith(f"Request {request_id} has oversize body. At most")


@pytest.fixture
def held(hasty, gates, wait_until):
    """All that the hasty server may hold is under way, until `held()`."""
    gate = gates / "go"
    go = gate.touch
    wish = {"folder": str(gates)}

    def call() -> None:
        # On a busy machine the server's patience may end before the test has looked.
        while not gate.exists():
            with contextlib.suppress(hasty.runtime.exceptions.ModelError):
                ask(hasty, wish=wish)

    calling = threading.Thread(target=call)
    calling.start()
    wait_until((gates / "begun").exists)
    yield go
    go()
    calling.join()


@BOTH
def test_more_than_can_be_held(hasty, held, operation):
    answer = raised(hasty, "ServiceUnavailable", operation=operation)
    assert answer["Error"]["Message"] == (
        "This gateway works on 1 invocations already (max_queued_invocations). Try again in a "
        "moment."
    )
    assert answer["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"


def test_a_client_that_tries_again_gets_in_when_there_is_room(hasty, held):
    client = hasty.server.client(
        "sagemaker-runtime", retries={"mode": "standard", "total_max_attempts": 10}
    )
    statuses = []

    def look(response_dict, **_):
        statuses.append(response_dict["status_code"])
        held()

    client.meta.events.register("response-received.sagemaker-runtime.InvokeEndpoint", look)
    answer = ask(hasty, client=client, wish={"says": "here"})
    assert answer["Body"].read() == b"here"
    assert (statuses[0], statuses[-1]) == (503, 200)
    client.close()


def test_a_session_that_cannot_be_kept(hasty):
    sessions = hasty.server.home / "run" / "sessions"
    aside = sessions.with_name("aside")
    shutil.move(sessions, aside)
    try:
        given = {"SessionId": "NEW_SESSION", "wish": {"session": "some-id"}}
        answer = raised(hasty, "ServiceUnavailable", **given)
    finally:
        shutil.move(aside, sessions)
    assert answer["Error"]["Message"] == (
        "The session cannot be kept: No such file or directory. Try again in a moment."
    )
