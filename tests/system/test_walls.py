"""What hostile code in a container finds, and containers that write the same paths, as root and as
a normal user."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sagehen.base.home import Home
from support.deploy import Deployer
from support.mounts import may_mount
from support.server import Server, eventually
from support.unprivileged import unprivileged_server

pytestmark = may_mount

HOSTILE = """
import json, os, socket

def model_fn(folder):
    return None

def attempt(action, *arguments):
    try:
        return action(*arguments)
    except Exception as error:
        return None

def read(path):
    with open(path, "rb") as file:
        return len(file.read())

def write(path):
    with open(path, "ab") as file:
        file.write(b"spoilt")
    return True

def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return True

def environ(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().decode(errors="replace")

def transform_fn(model, data, content_type, accept):
    wish = json.loads(data)
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    found = {
        "read": [path for path in wish["files"] if attempt(read, path) is not None],
        "written": [path for path in wish["files"] if attempt(write, path)],
        "connected": [path for path in wish["sockets"] if attempt(connect, path)],
        "signalled": [pid for pid in wish["pids"] if attempt(lambda: os.kill(pid, 0) or True)],
        "listed": {path: attempt(os.listdir, path) for path in wish["folders"]},
        "environments": [attempt(environ, pid) or "" for pid in pids],
        "through_proc": [
            pid for pid in pids
            if attempt(os.listdir, f"/proc/{pid}/root{wish['home']}/objects")
        ],
        "unmounted": os.system("umount " + wish["home"] + " 2>/dev/null") == 0,
        "disks": [name for name in os.listdir("/dev") if attempt(read_disk, "/dev/" + name)],
        "kernel": [path for path in wish["kernel"] if attempt(open_to_write, path)],
    }
    return json.dumps(found), "application/json"

def open_to_write(path):
    os.close(os.open(path, os.O_WRONLY))
    return True

def read_disk(path):
    import stat
    if stat.S_ISBLK(os.stat(path).st_mode):
        with open(path, "rb") as disk:
            return len(disk.read(512))
"""

RECIPE = """
import http.server, os, socket, threading
with open("/tmp/model.txt", "w") as file:
    file.write(os.environ["MODEL"])
try:
    os.unlink("/tmp/server.sock")
except FileNotFoundError:
    pass
backend = socket.socket(socket.AF_UNIX)
backend.bind("/tmp/server.sock")
backend.listen()

def serve():
    while True:
        connection, _ = backend.accept()
        with connection, open("/tmp/model.txt", "rb") as file:
            connection.sendall(file.read())
threading.Thread(target=serve, daemon=True).start()

class Front(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("/tmp/server.sock")
            answer = client.recv(100)
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Front).serve_forever()
"""
"""AWS's best-known recipe in small: a front, and a server behind a socket with a fixed path."""


KERNEL_SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/cgroup.procs",
)
"""of the whole machine"""


@pytest.fixture(scope="module", params=["as root", "as a normal user"])
def walled(
    request: pytest.FixtureRequest, make_server: Callable[..., Server]
) -> Iterator[Deployer]:
    """A server of this user, or of another one that is not root."""
    python = sys.executable if request.param == "as root" else "/usr/bin/python3"
    settings = {"images": json.dumps({"recipe": [python, "-c", RECIPE]})}
    if request.param == "as root":
        yield Deployer(make_server(gates=False, **settings))
        return
    with unprivileged_server(**settings) as server:
        yield Deployer(server)


def home_of_user(deployer: Deployer) -> Path:
    return Path(deployer.server.settings.get("HOME", os.path.expanduser("~")))


def ask(deployer: Deployer, wish: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(deployer.invoke("hostile", json.dumps(wish)))
    return found


def test_every_wall_stands(walled: Deployer) -> None:
    status = json.loads(walled.server.get("/_sagehen/status"))
    assert status["missing_walls"] == []


def test_hostile_code_finds_no_keys_no_models_and_no_processes(walled: Deployer) -> None:
    server = walled.server
    home, user = Home(server.home), home_of_user(walled)
    if user != Path("~").expanduser():
        for name in (".ssh/id_rsa", ".aws/credentials"):
            (user / name).parent.mkdir(exist_ok=True)
            (user / name).write_text("private")
    assert walled.endpoint("neighbour")["EndpointStatus"] == "InService"
    assert walled.endpoint("hostile", HOSTILE)["EndpointStatus"] == "InService"
    agent = server.pid("agent")
    models = [path for path in home.artifacts.rglob("*") if path.is_file()]
    files = [home.credentials, home.token, home.path / "state.db", *home.logs.glob("*"), *models]
    files += [user / ".ssh" / "id_rsa", user / ".aws" / "credentials"]
    files += [path for path in home.objects.rglob("*") if path.is_file()]
    sockets = [home.control_socket, home.agent_socket, *home.run.glob("i-*/http.sock")]
    assert models
    assert len(sockets) == 4, "control, the agent and two containers"
    assert home.credentials.exists()

    found = ask(
        walled,
        {
            "files": [str(path) for path in files if not path.is_dir()],
            "sockets": list(map(str, sockets)),
            "pids": [agent, server.process.pid if server.process else 0],
            "folders": [str(path) for path in (home.path, home.instances, home.run, user / ".ssh")],
            "home": str(home.path),
            "kernel": [path for path in KERNEL_SETTINGS if os.path.exists(path)],
        },
    )

    assert found["read"] == []
    assert found["written"] == []
    (own,) = found["connected"]
    assert own in map(str, home.run.glob("i-*/http.sock"))
    assert found["signalled"] == []
    assert found["through_proc"] == []
    assert not found["unmounted"]
    listed = found["listed"]
    assert sorted(listed[str(home.path)]) == ["environments", "instances", "run"]
    assert len(listed[str(home.instances)]) == len(listed[str(home.run)]) == 1
    assert not listed[str(user / ".ssh")]
    secret = json.loads(home.credentials.read_text())["secret_key"]
    own_mark = f"SAGEHEN_BASE_DIR={home.instances}/{listed[str(home.instances)][0]}/"
    told = [text for text in found["environments"] if "SAGEHEN_BASE_DIR=" in text]
    assert told
    assert all(own_mark in text for text in told)
    assert not [text for text in found["environments"] if secret in text]
    assert found["disks"] == []
    assert found["kernel"] == []


def deploy_recipe(deployer: Deployer, name: str, count: int = 1) -> None:
    """A model and a config of that name, whose container answers with it."""
    deployer.sagemaker.create_model(
        ModelName=name, PrimaryContainer={"Image": "recipe", "Environment": {"MODEL": name}}
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": count,
    }
    deployer.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])


def test_containers_of_one_recipe_answer_with_their_own_model(walled: Deployer) -> None:
    for name in ("model-a", "model-b"):
        deploy_recipe(walled, name, count=2)
        walled.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    for name in ("model-a", "model-b"):
        described = walled.settled(name)
        assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    for name in ("model-a", "model-b"):
        assert {walled.invoke(name) for _ in range(6)} == {name}
    walled.sagemaker.update_endpoint(EndpointName="model-a", EndpointConfigName="model-b")
    eventually(lambda: walled.status("model-a") == "InService")
    assert {walled.invoke("model-a") for _ in range(6)} == {"model-b"}
    assert {walled.invoke("model-b") for _ in range(6)} == {"model-b"}
    for name in ("model-a", "model-b"):
        walled.sagemaker.delete_endpoint(EndpointName=name)
    instances = walled.server.home / "instances"
    eventually(lambda: not any(instances.glob("*/container-1/tmp/model.txt")))


def test_killed_with_its_server_no_process_of_a_container_is_left(walled: Deployer) -> None:
    deploy_recipe(walled, "left")
    walled.sagemaker.create_endpoint(EndpointName="left", EndpointConfigName="left")
    assert walled.settled("left")["EndpointStatus"] == "InService"
    agent = psutil.Process(walled.server.pid("agent"))
    family = agent.children(recursive=True)
    assert len(family) >= 2, "an init and a main process"
    agent.kill()
    _, left = psutil.wait_procs(family, timeout=60)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]
    eventually(lambda: walled.status("left") == "InService" and answers(walled, "left"))


def answers(deployer: Deployer, name: str) -> bool:
    errors = deployer.runtime.exceptions
    try:
        return deployer.invoke(name) == name
    except (errors.ServiceUnavailable, errors.ModelError, errors.InternalFailure):
        return False
