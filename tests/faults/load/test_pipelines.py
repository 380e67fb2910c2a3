"""A pipeline's second container is killed, its instance is replaced: what callers see."""

import itertools
import json
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from support.containers import deploy_several
from support.processes import CONTAINER_NAME, container_pid

CALLERS = 4
FIRST = """
import json, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(asked, model):
    time.sleep(0.02)
    if isinstance(asked, str):
        Path(asked, "begun").touch()
        while not Path(asked, "go").exists():
            time.sleep(0.005)
    return asked
"""
SECOND = (
    CONTAINER_NAME
    + """
import json, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(number, model):
    time.sleep(0.02)
    if isinstance(number, dict):
        Path(number["held"]).touch()
        time.sleep(60)
    return [number, container_name()]
"""
)
JSON = "application/json"


class Load:
    """Callers without a pause, from the start of the `with` block to its end."""

    def __init__(self, deploy):
        self._deploy = deploy
        self._numbers = itertools.count()
        self._ending = threading.Event()
        self.answers = []
        """(number asked, number and process answered)."""
        self.errors = []

    def __enter__(self):
        # Clients may be used by any thread, but not made by several at once.
        clients = [self._deploy.server.client("sagemaker-runtime") for _ in range(CALLERS)]
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in clients]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client):
        while not self._ending.is_set():
            number = next(self._numbers)
            try:
                answer = client.invoke_endpoint(
                    EndpointName="passage", Body=json.dumps(number), ContentType=JSON
                )
                self.answers.append((number, json.loads(answer["Body"].read())))
            except ClientError as error:
                self.errors.append(error.response)
        client.close()

    def processes(self):
        return {told[1] for _, told in list(self.answers)}

    def all_right(self):
        return all(told[0] == number for number, told in self.answers)


@pytest.fixture(scope="module")
def passage(two_gateways):
    described = deploy_several(
        two_gateways,
        "passage",
        {"script": FIRST, "ContainerHostname": "first"},
        {"script": SECOND, "ContainerHostname": "second"},
    )
    assert described["EndpointStatus"] == "InService"
    yield two_gateways
    two_gateways.sagemaker.delete_endpoint(EndpointName="passage")


def nothing_counted(deploy):
    """No slot is held, and nobody waits."""
    cells = memoryview((deploy.server.home / "run" / "board").read_bytes()).cast("q")
    return not any(cells)


def test_a_killed_second_container_is_named_and_comes_back(passage, gates, wait_until):
    held = gates / "held"
    with Load(passage) as load, ThreadPoolExecutor() as pool:
        wait_until(lambda: len(load.answers) > 5 * CALLERS)
        (victim,) = load.processes()
        lost = pool.submit(passage.invoke, "passage", json.dumps({"held": str(held)}))
        wait_until(held.exists)
        os.kill(container_pid(victim), signal.SIGKILL)
        with pytest.raises(ClientError) as raised:
            lost.result()
        wait_until(lambda: load.processes() - {victim})
        since = len(load.answers)
        wait_until(lambda: len(load.answers) > since + 5 * CALLERS)
    by_model = [one for one in load.errors if one["Error"]["Code"] == "ModelError"]
    by_model.append(raised.value.response)
    others = [one for one in load.errors if one not in by_model]
    for one in by_model:
        assert one["ResponseMetadata"]["HTTPStatusCode"] == 424
        assert one["OriginalStatusCode"] == 0
        assert one["Error"]["Message"].startswith("Received server error (0) from second with")
    # Until it is back, nothing of a request is begun.
    assert {one["Error"]["Code"] for one in others} <= {"ServiceUnavailable"}
    assert load.all_right()
    wait_until(lambda: nothing_counted(passage))


def is_closed(path):
    """Nobody listens there any more."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(path) != 0


def test_what_the_first_works_on_when_its_instance_is_replaced_gets_to_the_second(
    passage, gates, wait_until
):
    (variant,) = passage.sagemaker.describe_endpoint_config(EndpointConfigName="passage")[
        "ProductionVariants"
    ]
    passage.sagemaker.create_endpoint_config(
        EndpointConfigName="passage-2", ProductionVariants=[variant]
    )

    def routed():
        table = json.loads((passage.server.home / "run" / "routes.json").read_bytes())
        return table["routes"]["passage"]["variants"][0]["instances"]

    (old,) = routed()
    first, second = (one["address"].partition(":")[2] for one in old["containers"])
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(passage.invoke, "passage", json.dumps(str(gates)))
        wait_until(lambda: (gates / "begun").exists())
        passage.sagemaker.update_endpoint(EndpointName="passage", EndpointConfigName="passage-2")
        wait_until(lambda: old not in routed())
        assert not is_closed(first)
        assert not is_closed(second)
        (gates / "go").touch()
        assert json.loads(asked.result())[0] == str(gates)
    wait_until(lambda: is_closed(first) and is_closed(second))
    assert passage.settled("passage")["EndpointConfigName"] == "passage-2"
