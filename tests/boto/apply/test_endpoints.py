"""An endpoint from a template: made, changed, failed, taken away."""

import pytest
from botocore.exceptions import ClientError

from support.stacks import names, served

DOUBLE_OF = """
import os

def model_fn(model_dir):
    return float(os.environ["FACTOR"])

def predict_fn(data, model):
    return data * model
"""


def test_an_endpoint_is_made_changed_and_taken_away(stack, deploy, clients):
    url = deploy.upload("apply/model.tar.gz", DOUBLE_OF)
    name = f"{stack.name}-serves"
    printed = stack.apply(served(url, 2, name))
    assert "Plan: 3 to create." in printed
    assert f"Name  {name}" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"

    printed = stack.apply()
    assert "Nothing to do." in printed
    assert "Creating" not in printed
    stack.apply(None, "--dry-run")

    before = names(clients["sagemaker"], stack)
    changed = served(url, 3, name)
    printed = stack.apply(changed, "--dry-run", status=3)
    assert 'PrimaryContainer.Environment.FACTOR: "2" -> "3"' in printed
    assert "-/+ AWS::SageMaker::Model Model" in printed
    assert f"~ AWS::SageMaker::Endpoint Endpoint ({name})" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"
    stack.apply(changed)
    assert deploy.invoke(name) == "[3.0, 6.0]"
    after = names(clients["sagemaker"], stack)
    assert len(after) == 2
    assert not set(before) & set(after)

    printed = stack.delete()
    deleted = [line.split()[1] for line in printed.splitlines() if line.startswith("Deleting")]
    assert deleted == [
        f"AWS::SageMaker::{kind}" for kind in ("Endpoint", "EndpointConfig", "Model")
    ]
    assert names(clients["sagemaker"], stack) == []
    with pytest.raises(ClientError, match="Could not find endpoint"):
        deploy.status(name)
    assert "There is no stack" in stack.delete()


def test_what_fails_is_told_and_what_served_serves_on(stack, deploy):
    good = deploy.upload("apply/model.tar.gz", DOUBLE_OF)
    bad = deploy.upload("apply/bad.tar.gz", "def model_fn(model_dir):\n    raise OSError('no way')")
    name = f"{stack.name}-serves"
    printed = stack.apply(served(bad, 2, name), status=1)
    assert "failed: " in printed
    assert "sagehen:" in printed
    assert deploy.status(name) == "Failed"

    printed = stack.apply(served(good, 2, name))
    assert "which failed" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"

    printed = stack.apply(served(bad, 2, name), status=1)
    assert "The update of AWS::SageMaker::Endpoint Endpoint" in printed
    assert "its previous configuration stays in effect" in printed
    assert deploy.invoke(name) == "[2.0, 4.0]"
    stack.apply(served(good, 2, name))
    assert deploy.invoke(name) == "[2.0, 4.0]"
    assert len(names(deploy.sagemaker, stack)) == 2
