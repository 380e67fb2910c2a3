"""Templates, applied to a real server and taken away again."""

import subprocess
import uuid
from pathlib import Path

import yaml
from typer.testing import CliRunner

from sagehen.app.cli import app
from support.deploy import IMAGE, ROLE
from support.server import SAGEHEN

__all__ = ["Stack", "names", "resource", "served"]


class Stack:
    """One stack, its template and its runs."""

    def __init__(self, server, folder: Path) -> None:
        self.server = server
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.file = folder / f"{self.name}.yaml"

    def write(self, template) -> None:
        self.file.write_text(template if isinstance(template, str) else yaml.safe_dump(template))

    def run(self, verb, *options):
        """Exit status and what was printed."""
        line = [verb, str(self.file), "--home", str(self.server.home), *map(str, options)]
        result = CliRunner().invoke(app, line)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return result.exit_code, result.output

    def apply(self, template=None, *options, status=0):
        if template is not None:
            self.write(template)
        found, printed = self.run("apply", *options)
        assert found == status, printed
        return printed

    def delete(self, status=0):
        found, printed = self.run("delete")
        assert found == status, printed
        return printed

    def start(self, template, *options):
        """A run in a process of its own."""
        self.write(template)
        return subprocess.Popen(
            [SAGEHEN, "apply", str(self.file), *options],
            env=self.server.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def resource(kind, properties=None, **more):
    return {"Type": f"AWS::{kind}", "Properties": properties or {}, **more}


def served(url, factor=2, name=None):
    """A template of an endpoint."""
    container = {"Image": IMAGE, "ModelDataUrl": url, "Environment": {"FACTOR": factor}}
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    config = {"EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]}}
    model = {"ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    return {
        "Resources": {
            "Endpoint": resource(
                "SageMaker::Endpoint", config | ({"EndpointName": name} if name else {})
            ),
            "Config": resource("SageMaker::EndpointConfig", {"ProductionVariants": [variant]}),
            "Model": resource("SageMaker::Model", model),
        },
        "Outputs": {"Name": {"Value": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}},
    }


def names(sagemaker, stack):
    """Of the stack's models and configs."""
    models = sagemaker.list_models(NameContains=stack.name)["Models"]
    configs = sagemaker.list_endpoint_configs(NameContains=stack.name)["EndpointConfigs"]
    return [one["ModelName"] for one in models] + [one["EndpointConfigName"] for one in configs]
