"""Frameworks, another user and CUDA's MPS on a real NVIDIA GPU."""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.deploy import ROLE, Deployer
from support.fixtures.gpu_card import (
    CPU,
    G5,
    HALF,
    ONE_WORKER,
    ROW,
    TASKS,
    ask,
    before_mib,
    created,
    deploy,
    total_mib,
    used_mib,
)
from support.unprivileged import unprivileged_server

__all__ = ["before_mib", "created", "deploy"]

pytestmark = pytest.mark.gpu


def mps(folder: Path, command: str) -> list[str]:
    """What the control program of the MPS daemon prints."""
    done = subprocess.run(
        ["nvidia-cuda-mps-control"],
        input=f"{command}\n",
        env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.split()


@pytest.fixture
def mps_folder(before_mib) -> Iterator[Path]:
    """The folder of an MPS daemon, where containers have a folder of their own."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        pytest.skip("the driver's nvidia-cuda-mps-control is not installed")
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    variables = dict.fromkeys(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"), str(folder))
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | variables, check=True)
    yield folder
    mps(folder, "quit")
    shutil.rmtree(folder, ignore_errors=True)


def test_containers_share_the_card_through_the_users_mps_daemon(
    mps_folder, monkeypatch, make_server, make_deployer
):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(mps_folder))
    server = make_server(gpu_devices="0")
    monkeypatch.undo()
    deploy = make_deployer(server)
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G"}
    for name in ("one", "other"):
        described = deploy.endpoint(name, TASKS, ONE_WORKER | HALF | limit, InstanceType=G5)
        assert described["EndpointStatus"] == "InService", described
    assert ask(deploy, "one", "predict", ROW) == ask(deploy, "other", "predict", ROW)
    (mps_server,) = mps(mps_folder, "get_server_list")
    assert len(mps(mps_folder, f"get_client_list {mps_server}")) == 2
    # MPS enforces limits whatever the framework.
    assert "out of memory" in ask(deploy, "one", "allocate", 0.3)
    server.stop()


def test_a_normal_users_containers_use_the_card(before_mib, make_deployer):
    with unprivileged_server(gpu_devices="0") as server:
        deploy = make_deployer(server)
        described = deploy.endpoint("user", TASKS, ONE_WORKER, InstanceType=G5)
        assert described["EndpointStatus"] == "InService", described
        assert ask(deploy, "user", "look")["device"] == "cuda:0"
        assert ask(deploy, "user", "predict", ROW)


USES_JAX = """
import json
import jax, jax.numpy as jnp

def model_fn(folder):
    return jnp.arange(8.0)

def transform_fn(model, data, content_type, accept):
    (device,) = model.devices()
    values = {"platform": device.platform, "sum": float(model.sum()),
              "limit": device.memory_stats()["bytes_limit"]}
    return json.dumps(values), "application/json"
"""


def test_jax_keeps_to_its_fraction(deploy, created):
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    quarter = {"SAGEHEN_GPU_FRACTION": "0.25"}
    described = deploy.endpoint("jax", USES_JAX, ONE_WORKER | quarter, InstanceType=G5)
    assert described["EndpointStatus"] == "InService", described
    answer = json.loads(deploy.invoke("jax"))
    assert (answer["platform"], answer["sum"]) == ("gpu", 28.0)
    assert answer["limit"] == pytest.approx(0.25 * total_mib() * 2**20, rel=0.05)


def test_a_hugging_face_pipeline_answers_as_on_the_processor(deploy, created, before_mib, tmp_path):
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    deploy.upload("none")
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(make_classifier(tmp_path / "model"), ".")
    deploy.s3.upload_file(str(archive), "models", "classifier.tar.gz")
    used = {}
    for name, instance_type in (("pipeline-card", G5), ("pipeline-processor", CPU)):
        create_pipeline(deploy, name, instance_type)
        used[name] = json.loads(deploy.invoke(name, '{"inputs": "good bad good"}'))
        if instance_type == G5:
            assert used_mib() > before_mib + 100
    (on_card,), (expected,) = used.values()
    assert on_card["label"] == expected["label"]
    assert on_card["score"] == pytest.approx(expected["score"], abs=1e-4)


def make_classifier(folder: Path) -> Path:
    """A small BERT of random weights that knows seven words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad")
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def create_pipeline(deploy: Deployer, name: str, instance_type: str) -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-inference:2.6.0"
    deploy.sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": f"{image}-transformers4.49.0-gpu-py312",
            "ModelDataUrl": "s3://models/classifier.tar.gz",
            "Environment": {"HF_TASK": "text-classification"},
        },
    )
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": instance_type}
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    described = deploy.settled(name)
    assert described["EndpointStatus"] == "InService", described
