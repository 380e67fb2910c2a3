"""Many models, several gateways, and what breaks meanwhile: a container, the agent."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.deploy import pack
from support.processes import container_pids

MODELS = 40
CALLERS = 8
NUMBERED = """
from pathlib import Path

def model_fn(model_dir):
    return int(Path(model_dir, "number").read_text())

def predict_fn(data, number):
    return number
"""
HELD = """
import time
from pathlib import Path

def model_fn(model_dir): ...

def predict_fn(data, model):
    Path({gate!r} + ".entered").touch()
    while not Path({gate!r}).exists():
        time.sleep(0.01)
    return "finished"
"""


@pytest.fixture(scope="module")
def many(make_server, make_deployer):
    """A server with two gateways, and an endpoint of many models."""
    deployer = make_deployer(make_server(gateways="2"))
    deployer.s3.create_bucket(Bucket="many")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: put_numbered(deployer, number), range(MODELS)))
    deployer.multi_model("numbers")
    return deployer


def put_numbered(deployer, number: int) -> None:
    body = pack({"code/inference.py": NUMBERED, "number": str(number)})
    deployer.s3.put_object(Bucket="many", Key=f"numbers/{number}.tar.gz", Body=body)


def put_script(deployer, key: str, script: str) -> None:
    body = pack({"code/inference.py": script})
    deployer.s3.put_object(Bucket="many", Key=key, Body=body)


def call(deployer, endpoint: str, target: str) -> str:
    answer = deployer.runtime.invoke_endpoint(
        EndpointName=endpoint, TargetModel=target, Body="[1]", ContentType="application/json"
    )
    return str(answer["Body"].read().decode())


def all_answer(deployer) -> bool:
    """Each of the models by itself, asked for by several callers at once."""
    with ThreadPoolExecutor(CALLERS) as pool:
        targets = [f"{number}.tar.gz" for number in range(MODELS)]
        answers = list(pool.map(lambda target: call(deployer, "numbers", target), targets))
    return answers == [str(number) for number in range(MODELS)]


def first_answers(deployer) -> bool:
    try:
        return call(deployer, "numbers", "0.tar.gz") == "0"
    except (ClientError, BotoCoreError):
        return False


def metric(deployer, endpoint: str, name: str) -> float:
    """The sum over all instances; those are left out whose agent does not answer in time."""
    lines = deployer.server.get("/_sagehen/metrics").decode().splitlines()
    mine = [line for line in lines if line.startswith(name + "{") and f'"{endpoint}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in mine)


def model_folders(deployer) -> int:
    """What containers were given, over all instances."""
    return len(list((deployer.server.home / "instances").glob("*/*/**/models/*")))


def test_models_are_loaded_once_whatever_gateways_are_asked(many, wait_until):
    assert all_answer(many)
    assert all_answer(many)
    loads = "sagehen_model_loading_time_microseconds_count"
    wait_until(lambda: metric(many, "numbers", loads) == MODELS)
    assert model_folders(many) == MODELS


def test_a_model_in_use_is_not_unloaded_under_its_request(many, gates, wait_until):
    gate = gates / "gate"
    put_script(many, "tight/held.tar.gz", HELD.format(gate=str(gate)))
    for number in range(3):
        put_script(many, f"tight/{number}.tar.gz", "def model_fn(d): ...\ndef predict_fn(d, m): 0")
    # Room for two such models: each counts as 64 KiB.
    many.multi_model("tight", SAGEHEN_MODEL_CACHE_BYTES="140000")
    with ThreadPoolExecutor(CALLERS) as pool:
        held = pool.submit(call, many, "tight", "held.tar.gz")
        wait_until(Path(f"{gate}.entered").exists)
        others = [pool.submit(call, many, "tight", f"{n % 3}.tar.gz") for n in range(12)]
        assert [other.result() for other in others] == ["null"] * 12
        gate.touch()
        assert held.result() == '"finished"'
    unloads = "sagehen_model_unloading_time_microseconds_count"
    loads = "sagehen_model_loading_time_microseconds_count"
    wait_until(lambda: 0 < metric(many, "tight", unloads) == metric(many, "tight", loads) - 2)


def test_many_callers_in_a_room_for_one_all_get_their_answers(many, wait_until):
    many.multi_model("crowd", SAGEHEN_MODEL_CACHE_BYTES="70000")
    for number in range(4):
        body = pack({"code/inference.py": NUMBERED, "number": str(number)})
        many.s3.put_object(Bucket="many", Key=f"crowd/{number}.tar.gz", Body=body)
    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(call, many, "crowd", f"{n % 4}.tar.gz") for n in range(24)]
        assert [one.result() for one in calls] == [str(n % 4) for n in range(24)]
    wait_until(lambda: metric(many, "crowd", "sagehen_loaded_model_count") == 1)


def container_of(deployer, endpoint: str) -> psutil.Process:
    (instance,) = [
        instance["id"]
        for one in json.loads(deployer.server.get("/_sagehen/status"))["endpoints"]
        if one["name"] == endpoint
        for variant in one["variants"]
        for instance in variant["instances"]
    ]
    agent = deployer.server.pid("agent")
    (container,) = [
        child
        for child in map(psutil.Process, container_pids(agent))
        if instance in child.environ().get("SAGEMAKER_BASE_DIR", "")
    ]
    return container


def test_a_container_that_crashes_with_many_models_has_them_all_again(many, wait_until):
    assert all_answer(many)
    container_of(many, "numbers").kill()
    wait_until(lambda: metric(many, "numbers", "sagehen_loaded_model_count") == 0)
    wait_until(lambda: first_answers(many))
    assert all_answer(many)
    wait_until(lambda: metric(many, "numbers", "sagehen_loaded_model_count") == MODELS)
    assert model_folders(many) <= MODELS + 3, "of its last life nothing is left"


def test_an_agent_that_is_killed_leaves_nothing_lost_and_nothing_behind(many, wait_until):
    before = many.server.pid("agent")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: many.server.pids().get("agent", before) != before)
    wait_until(lambda: first_answers(many))
    assert all_answer(many)
    downloads = "sagehen_model_downloading_time_microseconds_count"
    assert metric(many, "numbers", downloads) == 0, "what was on disk is there still"
    assert list((many.server.home / "artifacts" / ".fresh").iterdir()) == []
    assert model_folders(many) == MODELS
