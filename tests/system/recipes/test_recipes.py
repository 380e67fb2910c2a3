"""Containers that users have, unmodified: they listen on port 8080 and have /tmp to themselves."""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.deploy import ROLE, Deployer
from support.recipe_scenarios import SCENARIOS, Bench
from support.recipes import RECIPES
from support.server import eventually

SHARING = ("must listen on SAGEMAKER_BIND_TO_PORT", "Walls around containers are missing: files")
"""what the agent logs where the kernel lets containers have no network or no files of their own"""

TRAIN = """python3 -c "import json, pathlib
name = json.loads(pathlib.Path('/opt/ml/input/config/hyperparameters.json').read_text())['name']
pathlib.Path('/opt/ml/model/name.txt').write_text(name)"
""".strip()
SERVE = shlex.join(RECIPES["fastapi"].command)
ONE_IMAGE = replace(
    RECIPES["fastapi"],
    name="trains-and-serves",
    command=("bash", "-c", f"if [ $TRAINING_JOB_NAME ]; then {TRAIN}; else exec {SERVE}; fi"),
)
"""one command for the `train` and `serve` of an image, as the guide has it"""
NGINX_LOGS = Path("/var/log/nginx")

CASES = (
    *(("nginx-gunicorn-flask", name) for name in ("two endpoints", "update", "two variants")),
    ("multi-model-server", "two instances"),
    ("fastapi", "two endpoints"),
    *(("compiled", name) for name in ("two instances", "kill -9 of the agent")),
    *((name, "two endpoints") for name in ("mlflow-models-serve", "mlflow-container", "pytriton")),
)


@pytest.fixture(scope="module")
def walled(make_server) -> Deployer:
    server = make_server(
        gates=False,
        images=json.dumps({each.name: each.command for each in (*RECIPES.values(), ONE_IMAGE)}),
    )
    log = (server.home / "logs" / "agent.log").read_text()
    if missing := [line for line in log.splitlines() if any(told in line for told in SHARING)]:
        pytest.skip("; ".join(missing))
    return Deployer(server)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    recipe = RECIPES[request.param]
    if missing := recipe.missing():
        pytest.skip(f"not installed: {missing}")
    bench = Bench(request.getfixturevalue("walled"), recipe)
    yield bench
    bench.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("bench", "scenario"), CASES, indirect=["bench"])
def test_every_answer_is_the_models_own(bench: Bench, scenario: str) -> None:
    SCENARIOS[scenario](bench)
    assert bench.answers


class TrainedBench(Bench):
    """Its models are the artifacts of training jobs of the same image."""

    def model(self, model: str) -> str:
        name = f"{self.recipe.name}-{model}"
        image = f"000000000000.dkr.ecr.us-east-1.amazonaws.com/{self.recipe.name}:1"
        sagemaker = self.deploy.sagemaker
        self.deploy.s3.create_bucket(Bucket="trained")
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
            RoleArn=ROLE,
            HyperParameters={"name": model},
            OutputDataConfig={"S3OutputPath": "s3://trained/out"},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": 120},
        )
        ended: dict[str, Any] = {}

        def has_ended() -> bool:
            ended.update(sagemaker.describe_training_job(TrainingJobName=name))
            return ended["TrainingJobStatus"] in ("Completed", "Failed")

        eventually(has_ended)
        assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
        data = ended["ModelArtifacts"]["S3ModelArtifacts"]
        sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": image, "ModelDataUrl": data},
        )
        return name


@pytest.mark.timeout(600)
def test_one_image_trains_a_model_and_serves_it(walled: Deployer) -> None:
    if missing := ONE_IMAGE.missing():
        pytest.skip(f"not installed: {missing}")
    bench = TrainedBench(walled, ONE_IMAGE)
    SCENARIOS["two endpoints"](bench)
    bench.close()
    assert bench.answers


@pytest.mark.skipif(not NGINX_LOGS.is_dir(), reason=f"there is no {NGINX_LOGS}")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bench", ["nginx-gunicorn-flask"], indirect=True)
def test_the_logs_of_the_machines_nginx_stay_as_they_are(bench: Bench) -> None:
    """The entry point links them to its own output."""
    before = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(NGINX_LOGS)}
    SCENARIOS["two instances"](bench)
    after = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(NGINX_LOGS)}
    assert after == before
    # nginx writes the line when the answer has gone out, and the log is copied after that.
    logs = bench.deploy.server.home.glob("logs/endpoints/nginx-gunicorn-flask-pair/**/*.log")
    log = next(logs)
    eventually(lambda: "POST /invocations HTTP" in log.read_text())
