"""Models that cannot serve: each endpoint fails with a reason, and leaves nothing running."""

import gzip
import io
import tarfile

import pytest
from botocore.exceptions import ClientError

from support.deploy import IMAGE, ROLE, pack
from support.server import eventually


def archive(*members: tarfile.TarInfo) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return raw.getvalue()


def member(name: str, **attributes) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def endpoint_of(deploy, name: str, body: bytes, image: str = IMAGE) -> dict:
    deploy.s3.create_bucket(Bucket="bad-models")
    deploy.s3.put_object(Bucket="bad-models", Key=f"{name}.tar.gz", Body=body)
    deploy.sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": image, "ModelDataUrl": f"s3://bad-models/{name}.tar.gz"},
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deploy.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return deploy.settled(name)


def bomb() -> bytes:
    """Some kilobytes that say they are a terabyte."""
    header = tarfile.TarInfo("zeros")
    header.size = 2**40
    return gzip.compress(header.tobuf() + bytes(2**20))


BAD_ARCHIVES = {
    "not-an-archive": b"this is not a tar.gz",
    "no-bytes": b"",
    "not-compressed": gzip.decompress(archive(member("model", size=4))),
    "cut-short": archive(member("model", size=4))[:-20],
    "bomb": bomb(),
    "climbing": archive(member("../escaped.txt", size=4)),
    "absolute": archive(member("/tmp/escaped.txt", size=4)),
    "device": archive(member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "link-out": archive(member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_bad_archive_fails_the_endpoint(deploy, name):
    described = endpoint_of(deploy, name, BAD_ARCHIVES[name])
    assert described["EndpointStatus"] == "Failed"
    assert "Failed to extract model data archive" in described["FailureReason"]
    assert f"s3://bad-models/{name}.tar.gz" in described["FailureReason"]
    deploy.sagemaker.delete_endpoint(EndpointName=name)


@pytest.fixture(scope="module")
def rotten(deploy):
    """A multi-model endpoint; it outlives all that it is asked to load."""
    deploy.multi_model("rotten")
    return deploy


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_bad_archive_is_refused_by_a_multi_model_endpoint(rotten, name):
    rotten.s3.put_object(Bucket="many", Key=f"rotten/{name}", Body=BAD_ARCHIVES[name])
    with pytest.raises(ClientError) as refused:
        rotten.runtime.invoke_endpoint(EndpointName="rotten", TargetModel=name, Body="[1]")
    answer = refused.value.response
    assert answer["Error"]["Code"] == "ValidationError"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert answer["Error"]["Message"].startswith(
        'Failed to extract model data archive for container "container_1" from URL '
        f'"s3://many/rotten/{name}".'
    )


@pytest.mark.parametrize(
    ("name", "script", "said"),
    [
        (
            "raises-missing-module",
            "import nothing_of_that_name",
            "'nothing_of_that_name' (inference.py, line 1) (pack nothing_of_that_name beside the "
            "script, name its package in code/requirements.txt, or install it where Sagehen runs))",
        ),
        ("raises-at-import", "\nraise RuntimeError('odd')", "Error: odd (inference.py, line 2))"),
        (
            "raises-at-load",
            "def model_fn(d):\n    raise ValueError('no weights')",
            "(ValueError: no weights (inference.py, line 2))",
        ),
        ("syntax", "def model_fn(d:\n", "SyntaxError: '(' was never closed (inference.py, line 1)"),
        ("silent", "import os\nos._exit(3)", "exit status"),
    ],
)
def test_script_that_cannot_load_fails_the_endpoint(deploy, name, script, said):
    described = endpoint_of(deploy, name, pack({"code/inference.py": script}))
    assert described["EndpointStatus"] == "Failed"
    assert "did not pass the ping health check" in described["FailureReason"]
    assert said in described["FailureReason"]
    assert "Serving on" not in described["FailureReason"], "only what the user's code has said"
    if name.startswith("raises"):
        (log,) = (deploy.server.home / "logs" / "endpoints" / name).rglob("primary.log")
        lines = log.read_text()
        assert lines.count(" Serving on ") == 1, "started once"
        assert lines.count("Traceback (most recent call last)") == 1
        assert "sagehen/containers/modelserver" not in lines, "frames of the user's code only"
    deploy.sagemaker.delete_endpoint(EndpointName=name)


def test_model_file_that_does_not_load_fails_the_endpoint(deploy):
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
    body = pack({"xgboost-model": "no model"})
    described = endpoint_of(deploy, "broken-booster", body, image)
    assert described["EndpointStatus"] == "Failed"
    assert "did not pass the ping health check" in described["FailureReason"]


def test_the_reason_names_the_model_file(deploy):
    described = endpoint_of(deploy, "broken-onnx", pack({"a.onnx": "no model"}), "sagehen-onnx")
    assert described["EndpointStatus"] == "Failed"
    assert "Model a.onnx cannot be loaded" in described["FailureReason"]
    deploy.sagemaker.delete_endpoint(EndpointName="broken-onnx")


def test_failed_endpoint_can_only_be_deleted(deploy):
    endpoint_of(deploy, "only-delete", b"no")
    with pytest.raises(ClientError, match="ValidationException"):
        deploy.sagemaker.update_endpoint(
            EndpointName="only-delete", EndpointConfigName="only-delete"
        )
    deploy.sagemaker.delete_endpoint(EndpointName="only-delete")

    def gone() -> bool:
        listed = deploy.sagemaker.list_endpoints(NameContains="only-delete")
        return not listed["Endpoints"]

    eventually(gone)


def test_missing_archive_is_refused_at_create_model(deploy):
    deploy.s3.create_bucket(Bucket="bad-models")
    with pytest.raises(ClientError) as refused:
        deploy.sagemaker.create_model(
            ModelName="nowhere",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "ModelDataUrl": "s3://bad-models/nowhere.tar.gz"},
        )
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert "Could not access model data at s3://bad-models/nowhere.tar.gz" in str(refused.value)


def test_archive_that_went_away_fails_the_endpoint(deploy):
    deploy.config("went-away")
    deploy.s3.delete_object(Bucket="models", Key="went-away/model.tar.gz")
    deploy.sagemaker.create_endpoint(EndpointName="went-away", EndpointConfigName="went-away")
    described = deploy.settled("went-away")
    assert described["EndpointStatus"] == "Failed"
    assert "Failed to download model data" in described["FailureReason"]


def test_unknown_image_is_refused_with_what_to_do(deploy):
    url = deploy.upload("odd/model.tar.gz")
    with pytest.raises(ClientError, match="images") as refused:
        deploy.sagemaker.create_model(
            ModelName="odd",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": "my-company/odd:1", "ModelDataUrl": url},
        )
    assert refused.value.response["Error"]["Code"] == "ValidationException"


def test_a_crash_in_predict_is_a_model_error(deploy):
    script = (
        "def model_fn(d):\n    return 1\ndef predict_fn(d, m):\n    raise ValueError('odd row')\n"
    )
    assert deploy.endpoint("crashes", script)["EndpointStatus"] == "InService"
    with pytest.raises(ClientError) as refused:
        deploy.invoke("crashes")
    answer = refused.value.response
    assert answer["Error"]["Code"] == "ModelError"
    assert answer["OriginalStatusCode"] == 500
    assert "odd row" in answer["OriginalMessage"]
    assert answer["LogStreamArn"].endswith(":log-group:/aws/sagemaker/Endpoints/crashes")
    assert deploy.server.get("/_sagehen/health")
