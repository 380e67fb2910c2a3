"""`image_versions = "match"` installs what a tag names: really, from wheels that the test makes."""

import json
import os
import subprocess
import sys

import pytest
from botocore.exceptions import ClientError

from sagehen.containers.python_envs import image_libraries
from sagehen.containers.python_envs.image_libraries import ImageLibraries
from sagehen.containers.python_envs.install import Installer, RequirementsError, python_of
from support.cli import run_command
from support.deploy import ROLE, Deployer, pack
from support.server import eventually
from support.wheels import make_wheel, wheel_of_installed

REGISTRY = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
IMAGE = f"{REGISTRY}/sagemaker-scikit-learn:1.2-1-cpu-py3"
SAYS = """
import os, sklearn

def model_fn(folder):
    return sklearn.VERSION

def transform_fn(model, data, content_type, accept):
    return f"{model} {os.__file__} {sklearn.__file__}", "text/plain"
"""
TRAINS = """
import os, sklearn
with open(os.path.join(os.environ["SM_MODEL_DIR"], "version"), "w") as file:
    file.write(sklearn.VERSION)
print("trained by", sklearn.VERSION, sklearn.__file__)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """An index of what an environment needs: the image's libraries are stand-ins of a line."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "scikit_learn", "1.2.1", module="sklearn")
    for name, version in {"numpy": "1.26.0", "scipy": "1.10.0", "pandas": "1.5.0"}.items():
        make_wheel(folder, name, version)
    for name in ("httptools", "msgspec", "uvloop", "pip", "setuptools", "cloudpickle"):
        wheel_of_installed(folder, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv")))
        yield folder


@pytest.fixture
def only_this_python(monkeypatch):
    """The wheels of the model server's own libraries are for the tests' Python."""
    python = getattr(sys, "_base_executable", sys.executable)
    found = {sys.version_info[:2]: python}
    monkeypatch.setattr(image_libraries, "installed_pythons", lambda: found)


@pytest.mark.parametrize("without_pip_files", [True, False], ids=["uv", "pip"])
def test_an_environment_has_the_libraries_and_the_model_server(
    wheels, only_this_python, tmp_path, without_pip_files
):
    if without_pip_files:
        assert image_libraries.find_uv() is not None
    installer = Installer({}, 600, has_pip_files=not without_pip_files)
    spec = ImageLibraries(IMAGE, "3.8", ("scikit-learn==1.2.1",), ("numpy<2",))
    assert spec.make(tmp_path / "e", installer)
    code = "import numpy, sklearn, sagehen.containers.modelserver.program; print(sklearn.VERSION)"
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [python_of(tmp_path / "e"), "-c", code], env=environ, capture_output=True, text=True
    )
    assert said.stdout == "1.2.1\n", said.stderr


def test_uvs_reason_is_told_where_there_is_no_wheel(wheels, only_this_python, tmp_path):
    spec = ImageLibraries(IMAGE, "3.8", ("scikit-learn==0.20.0",), ())
    with pytest.raises(RequirementsError, match=r"needs 3\.10 or later.*wheels \(.*0\.20\.0"):
        spec.make(tmp_path / "e", Installer({}, 600, has_pip_files=False))
    assert not (tmp_path / "e").exists()


@pytest.fixture(scope="module")
def matching(wheels, make_server):
    return Deployer(make_server(image_versions="match"))


@pytest.fixture(scope="module")
def endpoint(matching):
    matching.sagemaker.create_model(
        ModelName="matched",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": matching.upload("matched/model.tar.gz", SAYS),
            "Environment": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
        },
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "matched",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    matching.sagemaker.create_endpoint_config(
        EndpointConfigName="matched", ProductionVariants=[variant]
    )
    matching.sagemaker.create_endpoint(EndpointName="matched", EndpointConfigName="matched")
    described = matching.settled("matched")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    return described


def test_an_endpoint_runs_with_the_tags_version(matching, endpoint):
    answer = matching.runtime.invoke_endpoint(EndpointName="matched", Body=b"")
    version, _, file = answer["Body"].read().decode().split()
    assert version == "1.2.1"
    assert str(matching.server.home / "environments") in file


def test_what_runs_is_told_where_users_look(matching, endpoint):
    (image,) = endpoint["ProductionVariants"][0]["DeployedImages"]
    assert image["ResolvedImage"] == "sagehen/scikit-learn:scikit-learn-1.2.1"
    text = "scikit-learn 1.2.1, in an environment of its own (the image has Python 3.8)"
    status = run_command("status", "--home", matching.server.home)
    assert f"matched: {text}" in " ".join(status.stdout.split())
    log = (matching.server.home / "logs" / "control.log").read_text()
    assert f"The model matched with the image {IMAGE} runs with {text}." in log


def training(**members):
    hyperparameters = {
        "sagemaker_program": json.dumps("train.py"),
        "sagemaker_submit_directory": json.dumps("s3://models/code/source.tar.gz"),
    }
    return {
        "TrainingJobName": "matched",
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "HyperParameters": hyperparameters,
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://models/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }


def test_a_training_job_runs_with_the_tags_version(matching):
    matching.s3.create_bucket(Bucket="models")
    source = pack({"train.py": TRAINS})
    matching.s3.put_object(Bucket="models", Key="code/source.tar.gz", Body=source)
    matching.sagemaker.create_training_job(**training())

    def described():
        return matching.sagemaker.describe_training_job(TrainingJobName="matched")

    eventually(lambda: described()["TrainingJobStatus"] in ("Completed", "Failed"))
    assert described()["TrainingJobStatus"] == "Completed", described().get("FailureReason")
    logs = matching.server.client("logs")
    group = "/aws/sagemaker/TrainingJobs"

    def lines():
        # A job's last lines arrive a moment after its end.
        return [event["message"] for event in logs.filter_log_events(logGroupName=group)["events"]]

    eventually(lambda: any(line.startswith("trained by 1.2.1 ") for line in lines()))


@pytest.mark.parametrize("kind", ["model", "job"])
def test_an_unknown_tag_is_refused(matching, kind):
    image = f"{REGISTRY}/sagemaker-scikit-learn:9.9-1"
    if kind == "model":
        container = {"Image": image}
        members = {"ModelName": "unknown", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
        create = matching.sagemaker.create_model
    else:
        specification = {"TrainingImage": image, "TrainingInputMode": "File"}
        members = training(AlgorithmSpecification=specification, TrainingJobName="unknown")
        create = matching.sagemaker.create_training_job
    with pytest.raises(ClientError) as refused:
        create(**members)
    error = refused.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert "9.9-1 is not in Sagehen's table" in error["Message"]
    assert "1.2-1" in error["Message"]
    assert 'image_versions = "installed"' in error["Message"]
