"""kill -9 of any one process, and of all at once: nothing that was answered is lost."""

import hashlib
import os
import signal
import threading
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.deploy import DOUBLE, pack

MODELS = ["first", "second"]


@pytest.fixture(scope="module")
def killed(make_server, make_deployer):
    """A server with two endpoints that serve, for this module to hurt.

    What serves is what was deployed: one's object was overwritten since, the other's deleted.
    """
    deployer = make_deployer(make_server())
    for name in MODELS:
        assert deployer.endpoint(name)["EndpointStatus"] == "InService"
    other = pack({"code/inference.py": DOUBLE.replace("2.0", "7.0")})
    deployer.s3.put_object(Bucket="models", Key="first/model.tar.gz", Body=other)
    deployer.s3.delete_object(Bucket="models", Key="second/model.tar.gz")
    return deployer


def serves(deployer) -> bool:
    try:
        return all(deployer.invoke(name) == "[2.0, 4.0]" for name in MODELS)
    except (ClientError, BotoCoreError):
        return False


def is_described(deployer) -> bool:
    try:
        return all(deployer.status(name) == "InService" for name in MODELS)
    except (ClientError, BotoCoreError):
        return False


@pytest.mark.parametrize("role", ["gateway", "control", "agent"])
def test_each_role_is_restarted_alone(killed, wait_until, role):
    before = killed.server.pids()
    os.kill(before[role], signal.SIGKILL)
    wait_until(lambda: killed.server.pids().get(role, before[role]) != before[role])
    wait_until(lambda: serves(killed))
    wait_until(lambda: is_described(killed))
    after = killed.server.pids()
    assert {name: pid for name, pid in after.items() if name != role} == {
        name: pid for name, pid in before.items() if name != role
    }


def test_the_data_plane_serves_without_control(killed, wait_until):
    pid = killed.server.pids()["control"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert serves(killed)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: killed.status("first") == "InService")


def instance_pids(server) -> list[int]:
    agent = server.pids()["agent"]
    children = Path(f"/proc/{agent}/task").glob("*/children")
    return [int(pid) for listed in children for pid in listed.read_text().split()]


def test_a_killed_instance_comes_back(killed, wait_until):
    before = instance_pids(killed.server)
    victim, *others = before
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in instance_pids(killed.server))
    wait_until(lambda: serves(killed))
    after = instance_pids(killed.server)
    assert set(after) & set(before) == set(others)
    assert len(after) == len(before)
    assert is_described(killed)


def test_nothing_outlives_a_killed_supervisor_and_all_comes_back(killed, wait_until):
    """Everything at once: with the supervisor the kernel ends the others, by SIGKILL too."""
    server = killed.server
    everyone = [*server.pids().values(), *instance_pids(server)]
    server.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everyone))
    server.start()
    listed = killed.sagemaker.list_endpoints()["Endpoints"]
    assert {endpoint["EndpointName"] for endpoint in listed} == set(MODELS)
    assert {m["ModelName"] for m in killed.sagemaker.list_models()["Models"]} == set(MODELS)
    wait_until(lambda: serves(killed))
    assert is_described(killed)
    assert not set(everyone) & {*server.pids().values(), *instance_pids(server)}


def test_objects_are_whole_or_absent(killed, wait_until):
    """Objects are written without a pause while control is killed: each is whole or not there."""
    s3 = killed.s3
    s3.create_bucket(Bucket="faults")
    answered: list[str] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            body = os.urandom(512 * 1024)
            key = f"{number}-{hashlib.sha256(body).hexdigest()}"
            number += 1
            try:
                s3.put_object(Bucket="faults", Key=key, Body=body)
                answered.append(key)
            except (ClientError, BotoCoreError):
                stop.wait(0.02)  # Nobody listens for a moment.

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            count = len(answered)
            wait_until(lambda count=count: len(answered) > count + 3)
            before = killed.server.pids()["control"]
            os.kill(before, signal.SIGKILL)
            wait_until(lambda pid=before: killed.server.pids().get("control", pid) != pid)
        count = len(answered)
        wait_until(lambda: len(answered) > count)
    finally:
        stop.set()
        writer.join()
    kept = [o["Key"] for o in s3.list_objects_v2(Bucket="faults").get("Contents", [])]
    assert set(answered) <= set(kept)
    for key in kept:
        body = s3.get_object(Bucket="faults", Key=key)["Body"].read()
        assert key.endswith(hashlib.sha256(body).hexdigest())
