"""The adapter that the guide has its reader copy works as it stands there, and so do its steps."""

import io
import json
import re
import shutil
import sysconfig
import tarfile
import venv
from pathlib import Path

import numpy as np
import pytest

import sagehen
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.contract import Refusal
from sagehen.containers.modelserver.environment import read_environment
from support.server import Server, eventually

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "add-an-adapter.md"


@pytest.fixture
def adapter():
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {"__name__": "guide"}
    exec(compile(code, GUIDE, "exec"), names)
    return names["adapter"](read_environment({}))


@pytest.fixture
def load(adapter, tmp_path):
    return lambda: adapter.load(tmp_path)


def test_the_guides_adapter_predicts_in_batches_and_refuses_what_does_not_fit(load, tmp_path):
    np.save(tmp_path / "weights.npy", np.array([1.0, 10.0]))
    model = load()
    batch = [model.decode(body, "text/csv") for body in (b"1,2", b"3,4\n5,6")]
    answers = [json.loads(model.encode(each, "").body) for each in model.predict(batch)]
    assert answers == [[21], [43, 65]]
    with pytest.raises(Refusal) as refused:
        model.predict([model.decode(b"1,2,3", "text/csv")])
    assert refused.value.status == 400


def test_only_a_script_needs_a_worker(adapter, tmp_path):
    assert not adapter.needs_worker(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").touch()
    assert adapter.needs_worker(tmp_path)


def test_the_guides_adapter_says_what_the_archive_needs(load):
    with pytest.raises(ModelFileError, match=r"needs weights\.npy"):
        load()


def test_the_guides_steps_make_an_image_that_is_served(tmp_path, short_path):
    guide = GUIDE.read_text()
    # Containers run the Python of the server, so the changed source gets one of its own.
    venv.create(tmp_path / "venv", symlinks=True)
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    package = packages / "sagehen"
    shutil.copytree(Path(sagehen.__file__).parent, package)
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (package / "containers" / "modelserver" / "adapters" / "linear.py").write_text(code)
    steps = re.findall(r"`([A-Z_]+)`, in\s+`src/sagehen/(\S+)`:\s+`(.+?)`", guide)
    assert [name for name, _, _ in steps] == ["ADAPTERS", "BUILT_IN_IMAGES"]
    for name, file, line in steps:
        path = package / file
        changed = re.sub(
            rf"^({name}\b.* = [{{(])$", rf"\1\n    {line}", path.read_text(), flags=re.M
        )
        assert changed != path.read_text(), f"{name} is not in {file}"
        path.write_text(changed)

    python = str(tmp_path / "venv" / "bin" / "python")
    program = (python, "-c", "from sagehen.app.cli import app; app()")
    server = Server(short_path / "home", {}, program=program)
    server.start()
    try:
        assert predict(server) == [21]
    finally:
        server.stop()


def predict(server):
    weights, archive = io.BytesIO(), io.BytesIO()
    np.save(weights, np.array([1.0, 10.0]))
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        member = tarfile.TarInfo("weights.npy")
        member.size = weights.tell()
        packed.addfile(member, io.BytesIO(weights.getvalue()))
    s3, sagemaker = server.client("s3"), server.client("sagemaker")
    s3.create_bucket(Bucket="adapter")
    s3.put_object(Bucket="adapter", Key="model.tar.gz", Body=archive.getvalue())
    sagemaker.create_model(
        ModelName="linear",
        ExecutionRoleArn="arn:aws:iam::000000000000:role/any",
        PrimaryContainer={
            "Image": "linear-weights:1",
            "ModelDataUrl": "s3://adapter/model.tar.gz",
        },
    )
    variant = {"VariantName": "main", "ModelName": "linear", "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="linear", ProductionVariants=[variant | {"InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName="linear", EndpointConfigName="linear")
    eventually(
        lambda: sagemaker.describe_endpoint(EndpointName="linear")["EndpointStatus"] != "Creating"
    )
    endpoint = sagemaker.describe_endpoint(EndpointName="linear")
    assert endpoint["EndpointStatus"] == "InService", endpoint.get("FailureReason")
    answer = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName="linear", ContentType="text/csv", Body="1,2"
    )
    return json.loads(answer["Body"].read())
