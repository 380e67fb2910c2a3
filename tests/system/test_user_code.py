"""What an endpoint's own code may do, and what it may ask for in requirements.txt."""

import importlib.util

import pytest
from botocore.exceptions import ClientError

from support.deploy import pack
from support.mounts import may_mount
from support.server import eventually
from support.wheels import make_wheel

SCRIPT = """
import os, shade

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    if data == "crash":
        os._exit(3)
    if data == "talk":
        for _ in range(256):
            print("x" * (2**20 - 1))
    return f"{shade.VERSION} {os.getppid()} {os.getpid()}", "text/plain"
"""


@pytest.fixture(scope="module")
def needing(deploy, tmp_path_factory):
    """`needing(name, requirements)`: an endpoint of the script above, waited for."""
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheel(wheels, "shade", "1.0")
    environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
    }

    def made(name: str, requirements: str) -> dict:
        deploy.config(name, SCRIPT, environment)
        files = {"code/inference.py": SCRIPT, "code/requirements.txt": requirements}
        deploy.s3.put_object(Bucket="models", Key=f"{name}/model.tar.gz", Body=pack(files))
        deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return deploy.settled(name)

    return made


def test_a_crash_in_the_users_code_costs_one_request(deploy, needing):
    assert needing("crashing", "shade==1.0\n")["EndpointStatus"] == "InService"
    version, server, worker = deploy.invoke("crashing").split()
    assert version == "1.0"
    with pytest.raises(ClientError) as refused:
        deploy.invoke("crashing", "crash")
    answer = refused.value.response
    assert answer["Error"]["Code"] == "ModelError"
    assert "ended with exit status 3" in answer["OriginalMessage"]
    _, server_after, worker_after = deploy.invoke("crashing").split()
    assert server_after == server
    assert worker_after != worker
    # A lot of output is read, and mostly forgotten.
    assert deploy.invoke("crashing", "talk").split()[2] == worker_after
    logs = deploy.server.home / "logs" / "endpoints" / "crashing"
    # The last of it may still be read from the pipe: files are renamed then, and get full.
    eventually(lambda: 0 < size_of_logs(logs) < 25 * 2**20)


INSTALLS = """
import os, subprocess, sys

subprocess.check_call([sys.executable, "-m", "pip", "install", "shade==2.0"])
subprocess.check_call("pip install lamp", shell=True)
import lamp, shade

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    return f"{shade.VERSION} {lamp.VERSION} {shade.__file__}", "text/plain"
"""


def test_what_a_script_installs_is_its_containers_own(deploy, tmp_path):
    for name, version in {"shade": "2.0", "lamp": "1.0"}.items():
        make_wheel(tmp_path, name, version)
    environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
    }
    described = deploy.endpoint("installs", INSTALLS, environment)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    shade, lamp, file = deploy.invoke("installs").split()
    assert (shade, lamp) == ("2.0", "1.0")
    assert file.startswith(str(deploy.server.home / "instances"))
    assert importlib.util.find_spec("lamp") is None


def size_of_logs(folder):
    try:
        return sum(log.stat().st_size for log in folder.rglob("*.log*"))
    except FileNotFoundError:
        return 0


OUTRIGHT = """
import pathlib

def model_fn(folder):
    return pathlib.Path("/opt/ml/model/code/inference.py").read_text()

def transform_fn(model, data, content_type, accept):
    return str(len(model)), "text/plain"
"""


@may_mount
def test_a_script_may_name_opt_ml_outright(deploy):
    assert deploy.endpoint("outright", OUTRIGHT)["EndpointStatus"] == "InService"
    assert int(deploy.invoke("outright")) == len(OUTRIGHT)


def test_requirements_that_cannot_be_met_fail_the_endpoint(deploy, needing):
    described = needing("unmet", "shade==3.0\n")
    assert described["EndpointStatus"] == "Failed"
    assert "No matching distribution found for shade==3.0" in described["FailureReason"]
    deploy.sagemaker.delete_endpoint(EndpointName="unmet")
