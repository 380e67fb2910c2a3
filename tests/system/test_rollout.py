"""Updates, weights and scaling of an endpoint that serves: nobody who calls it notices."""

import asyncio
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from sagehen.agent.client import AgentClient
from sagehen.base.home import Home
from sagehen.frame.container_specs import InstanceState
from support.deploy import loads_when
from support.processes import CONTAINER_NAME
from support.server import eventually

TIMES = "def model_fn(d):\n    return {factor}\ndef predict_fn(data, m):\n    return data * m\n"
WHO = (
    CONTAINER_NAME
    + """
def model_fn(d):
    return container_name()
def transform_fn(model, data, content_type, accept):
    return str(model), "text/plain"
"""
)


class Caller:
    """Invokes an endpoint again and again, from a thread of its own."""

    def __init__(self, deploy, name: str) -> None:
        self.answers: Counter[str] = Counter()
        self.errors: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(deploy, name))

    def __enter__(self) -> "Caller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, deploy, name: str) -> None:
        while not self._stop.wait(0.005):
            try:
                self.answers[deploy.invoke(name, "[1]")] += 1
            except (ClientError, BotoCoreError) as error:
                self.errors.append(error)


def test_update_puts_the_new_model_in_without_a_failed_call(deploy, gates):
    deploy.endpoint("rolling", TIMES.format(factor="2.0"))
    deploy.config("rolling-next", loads_when(gates / "gate", 3.0))
    with Caller(deploy, "rolling") as caller:
        eventually(lambda: caller.answers["[2.0]"] > 10)
        deploy.sagemaker.update_endpoint(EndpointName="rolling", EndpointConfigName="rolling-next")
        assert deploy.status("rolling") == "Updating"
        (gates / "gate").touch()
        assert deploy.settled("rolling")["EndpointConfigName"] == "rolling-next"
        seen = caller.answers["[3.0]"]
        eventually(lambda: caller.answers["[3.0]"] > seen + 30)
    assert caller.errors == []
    assert set(caller.answers) == {"[2.0]", "[3.0]"}


def test_failed_update_leaves_the_old_model_serving(deploy):
    deploy.endpoint("steady", TIMES.format(factor="2.0"))
    deploy.config("steady-broken", "raise RuntimeError('never works')\n")
    with Caller(deploy, "steady") as caller:
        deploy.sagemaker.update_endpoint(EndpointName="steady", EndpointConfigName="steady-broken")
        described = deploy.settled("steady")
    assert described["EndpointStatus"] == "InService"
    assert described["EndpointConfigName"] == "steady"
    assert "never works" in described["FailureReason"]
    assert caller.errors == []
    assert set(caller.answers) <= {"[2.0]"}


def test_weights_share_the_calls(deploy):
    url = deploy.upload("weights/model.tar.gz", WHO)
    from support.deploy import IMAGE, ROLE

    deploy.sagemaker.create_model(
        ModelName="weights",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "ModelDataUrl": url},
    )
    variants = [
        {
            "VariantName": name,
            "ModelName": "weights",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
            "InitialVariantWeight": weight,
        }
        for name, weight in (("much", 3), ("little", 1), ("none", 0))
    ]
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="weights", ProductionVariants=variants
    )
    deploy.sagemaker.create_endpoint(EndpointName="weights", EndpointConfigName="weights")
    deploy.settled("weights")

    def variant(**target: str) -> str:
        answer = deploy.runtime.invoke_endpoint(
            EndpointName="weights", Body="1", ContentType="application/json", **target
        )
        return str(answer["InvokedProductionVariant"])

    drawn = Counter(variant() for _ in range(300))
    assert set(drawn) == {"much", "little"}
    assert 180 < drawn["much"] < 265  # 225 expected; four standard deviations either way
    assert variant(TargetVariant="none") == "none"
    deploy.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="weights",
        DesiredWeightsAndCapacities=[
            {"VariantName": "much", "DesiredWeight": 0},
            {"VariantName": "none", "DesiredWeight": 1},
            {"VariantName": "little", "DesiredWeight": 0},
        ],
    )
    described = deploy.settled("weights")
    weights = {v["VariantName"]: v["CurrentWeight"] for v in described["ProductionVariants"]}
    assert weights == {"much": 0, "little": 0, "none": 1}
    eventually(lambda: {variant() for _ in range(5)} == {"none"})


def test_capacity_grows_and_shrinks(deploy):
    routing = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    deploy.endpoint("elastic", WHO, RoutingConfig=routing)

    def instances() -> int:
        return len({deploy.invoke("elastic", "[1]") for _ in range(20)})

    assert instances() == 1
    for count in (3, 1):
        deploy.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="elastic",
            DesiredWeightsAndCapacities=[
                {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
            ],
        )
        (variant,) = deploy.settled("elastic")["ProductionVariants"]
        assert variant["CurrentInstanceCount"] == variant["DesiredInstanceCount"] == count
        eventually(lambda count=count: instances() == count)


def held_by(gates: Path) -> str:
    """The code of a model that says who it is, and to `hold` goes on when `open` is there."""
    return (
        CONTAINER_NAME
        + f"""
import time
from pathlib import Path

def model_fn(d):
    return container_name()
def transform_fn(model, data, content_type, accept):
    return (held(model) if "hold" in str(data) else model), "text/plain"
def held(model):
    yield model
    Path({str(gates)!r}, "begun-" + model.replace("/", "_")).touch()
    while not Path({str(gates)!r}, "open").exists():
        time.sleep(0.01)
    yield " ends"
"""
    )


def stream(deploy, name: str, body: str) -> str:
    answer = deploy.runtime.invoke_endpoint_with_response_stream(
        EndpointName=name, Body=body, ContentType="application/json"
    )
    return b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"]).decode()


def agent_states(server) -> dict[str, InstanceState]:
    listed = asyncio.run(AgentClient(Home(server.home).agent_socket).instances())
    return {one.instance_id: one.state for one in listed.instances}


def test_an_instance_that_leaves_ends_its_requests_first(deploy, server, gates):
    """Scaled in from three to one, while two have a request, one of them a stream: the idle one
    goes, one of the others takes what comes, and the third answers what it has. Then it goes, too.
    """
    routing = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    deploy.endpoint("draining", held_by(gates), InitialInstanceCount=3, RoutingConfig=routing)
    status = json.loads(server.get("/_sagehen/status"))
    (described,) = (one for one in status["endpoints"] if one["name"] == "draining")
    instances = {one["id"] for one in described["variants"][0]["instances"]}
    assert len(instances) == 3

    def present() -> dict[str, InstanceState]:
        return {key: state for key, state in agent_states(server).items() if key in instances}

    with ThreadPoolExecutor(2) as pool:
        held = []
        for ask in (deploy.invoke, partial(stream, deploy)):
            held.append(pool.submit(ask, "draining", '"hold"'))
            eventually(lambda: len(list(gates.glob("begun-*"))) == len(held))
        try:
            deploy.sagemaker.update_endpoint_weights_and_capacities(
                EndpointName="draining",
                DesiredWeightsAndCapacities=[
                    {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}
                ],
            )
            assert deploy.settled("draining")["ProductionVariants"][0]["CurrentInstanceCount"] == 1
            # By then the busy one would have been told to stop, too.
            eventually(lambda: len(present()) == 2)
            assert set(present().values()) == {InstanceState.IN_SERVICE}
            answers = {deploy.invoke("draining", '"go"') for _ in range(20)}
            assert len(answers) == 1
            assert not any(one.done() for one in held)
        finally:
            (gates / "open").touch()
        ends = {one.result(60) for one in held}
    assert len(ends) == 2
    assert {f"{name} ends" for name in answers} < ends
    eventually(lambda: len(present()) == 1)
    assert set(present().values()) == {InstanceState.IN_SERVICE}


def test_deleted_models_and_configs_do_not_disturb_an_endpoint(deploy):
    deploy.endpoint("orphan")
    deploy.sagemaker.delete_model(ModelName="orphan")
    deploy.sagemaker.delete_endpoint_config(EndpointConfigName="orphan")
    assert deploy.invoke("orphan") == "[2.0, 4.0]"


def test_delete_ends_the_instances_and_frees_the_name(deploy):
    deploy.endpoint("short-lived")
    deploy.sagemaker.delete_endpoint(EndpointName="short-lived")

    def gone() -> bool:
        listed = deploy.sagemaker.list_endpoints(NameContains="short-lived")
        return not listed["Endpoints"]

    eventually(gone)
    try:
        deploy.invoke("short-lived")
    except ClientError as error:
        answer = error.response["Error"]
        assert answer["Code"] == "ValidationError"
        assert answer["Message"] == "Endpoint short-lived of account 000000000000 not found."
    else:
        raise AssertionError("it answered")
    deploy.sagemaker.create_endpoint(EndpointName="short-lived", EndpointConfigName="short-lived")
    assert deploy.settled("short-lived")["EndpointStatus"] == "InService"


def test_busy_endpoint_refuses_update_and_delete(deploy, gates):
    deploy.config("busy", loads_when(gates / "gate", 1.0))
    deploy.sagemaker.create_endpoint(EndpointName="busy", EndpointConfigName="busy")
    refusals = []
    for act in (
        lambda: deploy.sagemaker.delete_endpoint(EndpointName="busy"),
        lambda: deploy.sagemaker.update_endpoint(EndpointName="busy", EndpointConfigName="busy"),
    ):
        try:
            act()
        except ClientError as error:
            refusals.append(error.response["Error"]["Message"])
    assert len(refusals) == 2
    assert all(said.startswith("Cannot update in-progress endpoint") for said in refusals)
    assert deploy.status("busy") == "Creating"
    (gates / "gate").touch()
    assert deploy.settled("busy")["EndpointStatus"] == "InService"
