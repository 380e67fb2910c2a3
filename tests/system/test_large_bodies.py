"""The largest body that InvokeEndpoint takes reaches the container whole, and comes back."""

import hashlib

import pytest

from support.deploy import pack

LARGEST_BYTES = 25 * 2**20
ECHO = """
import hashlib

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    return hashlib.sha256(data).hexdigest().encode() + data[64:], "application/octet-stream"
"""


@pytest.fixture(scope="module")
def target(deploy):
    """What to ask for, by the kind of endpoint."""
    assert deploy.endpoint("echo", ECHO)["EndpointStatus"] == "InService"
    deploy.multi_model("echoes")
    body = pack({"code/inference.py": ECHO})
    deploy.s3.put_object(Bucket="many", Key="echoes/model.tar.gz", Body=body)
    return {
        "single": {"EndpointName": "echo"},
        "multi": {"EndpointName": "echoes", "TargetModel": "model.tar.gz"},
    }


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_25_mebibytes_each_way(deploy, target, kind):
    body = bytes(range(256)) * (LARGEST_BYTES // 256)
    answer = deploy.runtime.invoke_endpoint(
        Body=body, ContentType="application/octet-stream", **target[kind]
    )
    assert answer["Body"].read() == hashlib.sha256(body).hexdigest().encode() + body[64:]
