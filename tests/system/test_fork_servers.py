"""Containers that are forked, next to those that are started in the ordinary way."""

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from support.deploy import Deployer
from support.processes import container_pids, fork_server_pids
from support.server import Server, eventually
from support.unprivileged import unprivileged_server

NOT_LATE = {"UNKNOWN": "1"}
"""with it, a container is started in the ordinary way"""
LIMIT_BYTES = 2**29
OF_EACH = tuple(
    f"/environment/{name}" for name in ("SAGEHEN_WORKER", "SAGEMAKER_SAFE_PORT_RANGE", *NOT_LATE)
)

FACTS = """
import ctypes, json, os, random, socket, sys, tempfile, uuid

def lines(path, *names):
    with open(path) as file:
        split = (line.split(":", 1) for line in file if ":" in line)
        return {name: value.strip() for name, value in split if name in names}

def descriptors(pid):
    folder = f"/proc/{pid}/fd/"
    opened = [folder + name for name in os.listdir(folder) if os.path.lexists(folder + name)]
    return sorted({os.readlink(link).split("[")[0] for link in opened})

def facts_of(pid):
    files = [file for file in descriptors(pid) if ".begun-" not in file]
    with open(f"/proc/{pid}/limits") as limits, open(f"/proc/{pid}/oom_score_adj") as score:
        return {
            "status": lines(
                f"/proc/{pid}/status", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Groups",
                "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "SigCgt", "Uid", "Umask", "NSsid",
            ),
            "limits": limits.read(),
            "score": score.read(),
            "files": files,
            "command": open(f"/proc/{pid}/cmdline").read().split("\\0")[1:3],
            "working": os.readlink(f"/proc/{pid}/cwd"),
        }

def control(option):
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value

def facts(_):
    import numpy
    return {
        "server": facts_of(os.getppid()),
        "worker": facts_of(os.getpid()),
        "environment": dict(os.environ),
        "search": sys.path,
        "main": sys.modules["__main__"].__spec__.name,
        "module": __name__,
        "program": sys.argv[0],
        "flags": str(sys.flags),
        "numpy": numpy.__file__,
        "output": [sys.stdout.write_through, sys.stdout.encoding, sys.stderr.encoding],
        "temporary": tempfile.gettempdir(),
        "parent_death": control(2),
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
        "paths": [os.path.exists(p) for p in ("/opt/ml/model", os.environ["SM_MODEL_DIR"])],
        "processes": sum(name.isdigit() for name in os.listdir("/proc")) < 20,
    }

def chance(_):
    import numpy
    return [
        random.random(), numpy.random.random(), numpy.random.default_rng().random(),
        str(uuid.uuid4()), tempfile.mktemp(dir="/"), os.urandom(4).hex(),
    ]

def eat(_):
    return len(bytearray(2**30).replace(b"\\0", b"x"))

def mark(_):
    return open("/proc/self/environ").read()

def model_fn(folder):
    return CHOSEN

def transform_fn(model, data, content_type, accept):
    return json.dumps([model, globals()[data.decode()](None)]), "application/json"

CHOSEN = 0
"""

INSTALLS = """
import os, pathlib

folder = os.environ["PYTHONPATH"].split(":")[0]
pathlib.Path(folder, "numpy.py").write_text("mark = 'its own'")
import numpy

def model_fn(folder):
    return getattr(numpy, "mark", "the server's")

def transform_fn(model, data, content_type, accept):
    return model, "text/plain"
"""


class Endpoints:
    """Serverless endpoints, and ordinary ones, on one server."""

    def __init__(self, deployer: Deployer) -> None:
        self.deployer = deployer
        self.server: Server = deployer.server

    def serverless(self, name: str, script: str = FACTS, **variables: str) -> None:
        """Without instances, and with a fork server that is ready."""
        self.deployer.model(name, script, variables)
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 4},
        }
        self.deployer.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant]
        )
        self.deployer.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert self.deployer.settled(name)["EndpointStatus"] == "InService"
        self.comes_to_zero(name)
        self.is_warm()

    def comes_to_zero(self, name: str) -> None:
        eventually(lambda: not self.instances(name))

    def instances(self, name: str) -> list[Any]:
        status = json.loads(self.server.get("/_sagehen/status"))
        (described,) = (each for each in status["endpoints"] if each["name"] == name)
        return list(described["variants"][0]["instances"])

    def is_warm(self) -> None:
        """The log has a line for each fork server that is ready."""
        eventually(lambda: self.fork_servers() and self.readied() == self.fork_servers())

    def fork_servers(self) -> set[int]:
        return set(fork_server_pids(self.server.pid("agent")))

    def readied(self) -> set[int]:
        log = (self.server.home / "logs" / "agent.log").read_text()
        pids = re.findall("A fork server is ready.*? pid=([0-9]+)", log)
        return set(map(int, pids)) & self.fork_servers()

    def starts(self, name: str) -> dict[str, float]:
        """By kind, of the instance that is there."""
        found = {}
        for line in self.server.get("/_sagehen/metrics").decode().splitlines():
            if line.startswith(f'sagehen_container_starts_total{{endpoint="{name}"'):
                kind = re.search('start="([a-z]+)"', line)
                assert kind is not None
                found[kind[1]] = float(line.rpartition(" ")[2])
        return found

    def call(self, name: str, what: str = "facts") -> Any:
        answer = self.deployer.runtime.invoke_endpoint(
            EndpointName=name, Body=what, ContentType="text/plain"
        )
        return json.loads(answer["Body"].read())


@pytest.fixture(scope="module")
def endpoints(make_server: Any, make_deployer: Any) -> Endpoints:
    server = make_server(serverless_idle_seconds="1", instance_memory_bytes=str(LIMIT_BYTES))
    return Endpoints(make_deployer(server))


@pytest.fixture(scope="module")
def warm(endpoints: Endpoints) -> str:
    """A serverless endpoint of FACTS without instances."""
    endpoints.serverless("facts")
    return "facts"


def leaves(facts: Any, path: str = "") -> dict[str, Any]:
    """Each value by its path, without the names of instances."""
    if isinstance(facts, dict):
        return {k: v for key in facts for k, v in leaves(facts[key], f"{path}/{key}").items()}
    text = re.sub("i-[0-9a-f]{17}", "INSTANCE", str(facts))
    return {path: text}


def check_likeness(endpoints: Endpoints, warm: str) -> None:
    _, forked = endpoints.call(warm)
    assert endpoints.starts(warm) == {"forked": 1, "ordinary": 0}
    endpoints.serverless("anew", **NOT_LATE)
    _, anew = endpoints.call("anew")
    assert endpoints.starts("anew") == {"forked": 0, "ordinary": 1}
    one, other = leaves(forked), leaves(anew)
    assert {
        name: (one.get(name), other.get(name))
        for name in (one | other)
        if one.get(name) != other.get(name) and name not in OF_EACH
    } == {}


def test_a_forked_container_is_like_one_that_was_started_anew(endpoints: Endpoints, warm: str):
    check_likeness(endpoints, warm)


def test_of_a_normal_user_too(make_deployer: Any):
    with unprivileged_server(serverless_idle_seconds="1") as server:
        endpoints = Endpoints(make_deployer(server))
        endpoints.serverless("facts")
        check_likeness(endpoints, "facts")


def test_two_forked_containers_share_no_chance(endpoints: Endpoints, warm: str):
    _, first = endpoints.call(warm, "chance")
    endpoints.comes_to_zero(warm)
    _, second = endpoints.call(warm, "chance")
    assert endpoints.starts(warm)["forked"] == 1
    assert not set(first) & set(second)


def test_what_a_script_installs_comes_before_what_was_imported(endpoints: Endpoints):
    endpoints.serverless("installs", INSTALLS)
    assert endpoints.deployer.invoke("installs") == "its own"
    assert endpoints.starts("installs")["forked"] == 1


def test_a_forked_container_is_held_to_its_memory(endpoints: Endpoints, warm: str):
    endpoints.comes_to_zero(warm)
    with pytest.raises(ClientError):
        endpoints.call(warm, "eat")
    log = endpoints.server.home / "logs" / "agent.log"
    eventually(lambda: f"passed the {LIMIT_BYTES // 2**20} MiB" in log.read_text())


def test_without_a_fork_server_a_container_starts_in_the_ordinary_way(
    endpoints: Endpoints, warm: str
):
    endpoints.comes_to_zero(warm)
    (pid,) = endpoints.fork_servers()
    os.kill(pid, signal.SIGSTOP)  # requests are taken, and nothing happens
    assert endpoints.call(warm, "chance")
    assert endpoints.starts(warm) == {"forked": 0, "ordinary": 1}
    is_replaced(endpoints, warm, pid)
    (pid,) = endpoints.fork_servers()
    os.kill(pid, signal.SIGKILL)
    assert endpoints.call(warm, "chance")
    is_replaced(endpoints, warm, pid)


def is_replaced(endpoints: Endpoints, warm: str, pid: int) -> None:
    eventually(lambda: endpoints.fork_servers() and pid not in endpoints.fork_servers())
    endpoints.is_warm()
    endpoints.comes_to_zero(warm)
    assert endpoints.call(warm, "chance")
    assert endpoints.starts(warm)["forked"] == 1
    endpoints.comes_to_zero(warm)


def test_all_end_with_the_agent(endpoints: Endpoints, warm: str):
    assert endpoints.call(warm, "chance")
    agent = endpoints.server.pid("agent")
    below = psutil.Process(agent).children(recursive=True)
    assert set(container_pids(agent) + fork_server_pids(agent)) <= {each.pid for each in below}
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: not any(map(runs, below)))
    # Control tells the next agent.
    eventually(lambda: endpoints.server.pids().get("agent", agent) != agent)
    endpoints.is_warm()


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_no_fork_server_is_kept_for_what_nobody_needs(
    endpoints: Endpoints, warm: str, deleted: Callable[[], None]
):
    endpoints.is_warm()
    assert endpoints.fork_servers()
    deleted()
    eventually(lambda: not endpoints.fork_servers())


@pytest.fixture
def deleted(endpoints: Endpoints) -> Callable[[], None]:
    def delete() -> None:
        sagemaker = endpoints.deployer.sagemaker
        for endpoint in sagemaker.list_endpoints()["Endpoints"]:
            sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])

    return delete
