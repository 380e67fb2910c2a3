"""A training job's container as the agent prepares it, and the runner in a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RESOURCES = {
    "current_host": "algo-1",
    "hosts": ["algo-1", "algo-2"],
    "current_instance_type": "ml.m5.large",
    "current_group_name": "homogeneousCluster",
    "instance_groups": [
        {
            "instance_group_name": "homogeneousCluster",
            "instance_type": "ml.m5.large",
            "hosts": ["algo-1", "algo-2"],
        }
    ],
    "network_interface_name": "eth0",
}


class Job:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.parameters = {"sagemaker_submit_directory": '"s3://bucket/source.tar.gz"'}
        self.environ = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(base)}
        for folder in ("input/config", "code", "output"):
            (base / folder).mkdir(parents=True)
        self.config("resourceconfig.json", RESOURCES)
        self.config("inputdataconfig.json", {"train": {"TrainingInputMode": "File"}})

    def config(self, name, value):
        (self.base / "input" / "config" / name).write_text(json.dumps(value))

    def script(self, name, text):
        """Put a file beside the others, and have it be the program."""
        (self.base / "code" / name).parent.mkdir(exist_ok=True)
        (self.base / "code" / name).write_text(text)
        self.parameters["sagemaker_program"] = json.dumps(name)

    def start(self):
        self.config("hyperparameters.json", self.parameters)
        return subprocess.Popen(
            [sys.executable, "-m", "sagehen.scriptrunner"],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.base,
        )

    def run(self):
        process = self.start()
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors

    @property
    def failure(self):
        file = self.base / "output" / "failure"
        return file.read_text() if file.exists() else None


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "ml")
