"""Objects kept in another S3: a second server stands in for it, signatures and all."""

import json
import os

import pytest

from support.async_bench import AsyncBench
from support.deploy import Deployer
from support.server import eventually
from support.way import Way

UPPER = """
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    return data.upper(), "text/csv"
"""
BIG = 9 * 2**20  # over boto3's threshold for multipart uploads


@pytest.fixture(scope="module")
def way(server):
    """To the other store, which is the shared server."""
    made = Way(server.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def beyond(server, way, make_server):
    """A server whose objects are kept in a bucket of the shared one."""
    server.client("s3").create_bucket(Bucket="outside")
    keys = server.env
    options = {
        "endpoint": f"http://127.0.0.1:{way.port}",
        "access_key_id": keys["AWS_ACCESS_KEY_ID"],
        "secret_access_key": keys["AWS_SECRET_ACCESS_KEY"],
        "region": "us-east-1",
        "virtual_hosted_style_request": "false",
    }
    return make_server(
        object_store_url="s3://outside/kept", object_store_options=json.dumps(options)
    )


def test_an_endpoint_serves_a_model_that_lies_elsewhere(server, beyond):
    deployer = Deployer(beyond)
    assert deployer.endpoint("away")["EndpointStatus"] == "InService"
    assert deployer.invoke("away") == "[2.0, 4.0]"
    kept = server.client("s3").list_objects_v2(Bucket="outside", Prefix="kept/models/away/")
    assert [one["Key"] for one in kept["Contents"]] == ["kept/models/away/model.tar.gz"]


def test_objects_go_there_and_back(server, beyond, tmp_path):
    s3 = beyond.client("s3")
    s3.create_bucket(Bucket="there")
    (tmp_path / "sent").write_bytes(os.urandom(BIG))
    s3.upload_file(str(tmp_path / "sent"), "there", "a folder/big.bin")
    s3.download_file("there", "a folder/big.bin", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
    part = s3.get_object(Bucket="there", Key="a folder/big.bin", Range="bytes=5-9")
    assert part["Body"].read() == (tmp_path / "sent").read_bytes()[5:10]
    assert [one["Key"] for one in s3.list_objects_v2(Bucket="there")["Contents"]] == [
        "a folder/big.bin"
    ]
    s3.delete_object(Bucket="there", Key="a folder/big.bin")
    assert "Contents" not in s3.list_objects_v2(Bucket="there")
    outside = server.client("s3").list_objects_v2(Bucket="outside", Prefix="kept/there/")
    assert "Contents" not in outside


def test_a_transform_job_reads_and_writes_there(server, beyond):
    deployer = Deployer(beyond)
    deployer.model("there-upper", UPPER)
    deployer.s3.create_bucket(Bucket="batch")
    large = "".join(f"{number},a row of a large object\n" for number in range(350_000))
    objects = {"a b+ü.csv": "one\ntwo\n", "large.csv": large}  # the large one in parts
    for key, body in objects.items():
        deployer.s3.put_object(Bucket="batch", Key=f"in/{key}", Body=body.encode())
    deployer.sagemaker.create_transform_job(
        TransformJobName="there",
        ModelName="there-upper",
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://batch/in/"}},
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": "s3://batch/out", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )

    def described():
        return deployer.sagemaker.describe_transform_job(TransformJobName="there")

    eventually(lambda: described()["TransformJobStatus"] in ("Completed", "Failed"))
    assert described()["TransformJobStatus"] == "Completed", described()
    kept = server.client("s3").list_objects_v2(Bucket="outside", Prefix="kept/batch/out/")
    keys = [one["Key"].removeprefix("kept/batch/out/") for one in kept["Contents"]]
    assert keys == [f"{key}.out" for key in objects]
    for key, body in objects.items():
        answer = deployer.s3.get_object(Bucket="batch", Key=f"out/{key}.out")
        assert answer["Body"].read().decode() == body.upper()
    assert "Uploads" not in deployer.s3.list_multipart_uploads(Bucket="batch")


def test_an_asynchronous_answer_waits_for_a_store_that_is_away(way, beyond, gates, wait_until):
    bench = AsyncBench(Deployer(beyond))
    assert bench.endpoint("patient")["EndpointStatus"] == "InService"
    began, gate = gates / "began", gates / "gate"
    called = bench.call("patient", number=1, began=began, gate=gate)
    wait_until(began.exists)
    way.cut()
    gate.touch()
    assert way.was_tried.wait(120)  # The answer is to be written, and cannot be.
    way.mend()
    assert json.loads(called.output())["number"] == 1
