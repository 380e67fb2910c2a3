"""What a framework's container refuses reaches boto3 as SageMaker's ModelError."""

import io
import json
import tarfile

import pytest
from botocore.exceptions import ClientError

from support.deploy import ROLE, pack
from support.frameworks import onnx_helper as helper


def doubling() -> bytes:
    """A model.tar.gz with y = 2x, for rows of two."""
    x, y = (helper.make_tensor_value_info(n, helper.TensorProto.FLOAT, [None, 2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        member = tarfile.TarInfo("model.onnx")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return raw.getvalue()


@pytest.fixture(scope="module")
def invoke(deploy):
    """Asks one of two ONNX models behind a multi-model endpoint."""
    deploy.s3.create_bucket(Bucket="doubles")
    for name in ("a", "b"):
        deploy.s3.put_object(Bucket="doubles", Key=f"{name}.tar.gz", Body=doubling())
    container = {"Image": "onnx", "ModelDataUrl": "s3://doubles/", "Mode": "MultiModel"}
    deploy.sagemaker.create_model(
        ModelName="doubles", ExecutionRoleArn=ROLE, PrimaryContainer=container
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "doubles",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="doubles", ProductionVariants=[variant]
    )
    deploy.sagemaker.create_endpoint(EndpointName="doubles", EndpointConfigName="doubles")
    assert deploy.settled("doubles")["EndpointStatus"] == "InService"
    yield lambda body, model="a", **how: deploy.runtime.invoke_endpoint(
        EndpointName="doubles", TargetModel=f"{model}.tar.gz", Body=body, **how
    )
    deploy.sagemaker.delete_endpoint(EndpointName="doubles")


def test_two_models_of_one_framework_answer(invoke):
    for model in ("a", "b"):
        answer = invoke(b"1,2", model, ContentType="text/csv")
        assert json.load(answer["Body"]) == [[2, 4]]


@pytest.mark.parametrize(
    ("body", "how", "status", "said"),
    [
        (b"1,2", {"ContentType": "text/plain"}, 415, "Content type text/plain is not supported"),
        (b"1,2", {}, 415, "no Content-Type"),
        (b"1,2", {"ContentType": "text/csv", "Accept": "image/png"}, 406, "Accept type image/png"),
        (b"", {"ContentType": "text/csv"}, 400, "it is empty"),
        (b"1,2,3", {"ContentType": "text/csv"}, 400, "the model takes (rows, 2)"),
    ],
)
def test_a_refusal_keeps_its_status_and_its_sentence(invoke, body, how, status, said):
    with pytest.raises(ClientError) as refused:
        invoke(body, **how)
    answer = refused.value.response
    assert answer["Error"]["Code"] == "ModelError"
    assert answer["OriginalStatusCode"] == status
    assert said in answer["OriginalMessage"]


HUGGING_FACE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-inference:2.6.0"
RAISES = """
def model_fn(model_dir):
    return None

def predict_fn(data, model):
    raise LookupError(f"no {data['inputs']} here")
"""


def test_a_hugging_face_script_that_raises_is_a_client_error(deploy):
    deploy.config("raises")
    archive = pack({"code/inference.py": RAISES})
    deploy.s3.put_object(Bucket="models", Key="raises/model.tar.gz", Body=archive)
    deploy.sagemaker.delete_model(ModelName="raises")
    container = {
        "Image": HUGGING_FACE,
        "ModelDataUrl": "s3://models/raises/model.tar.gz",
        "Environment": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
    }
    deploy.sagemaker.create_model(
        ModelName="raises", ExecutionRoleArn=ROLE, PrimaryContainer=container
    )
    deploy.sagemaker.create_endpoint(EndpointName="raises", EndpointConfigName="raises")
    assert deploy.settled("raises")["EndpointStatus"] == "InService"
    with pytest.raises(ClientError, match=r"Received client error \(400\) from primary") as refused:
        deploy.invoke("raises", '{"inputs": "grouse"}')
    answer = refused.value.response
    assert answer["OriginalStatusCode"] == 400
    assert json.loads(answer["OriginalMessage"]) == {
        "code": 400,
        "type": "InternalServerException",
        "message": "no grouse here",
    }
    deploy.sagemaker.delete_endpoint(EndpointName="raises")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [(b'{"a": ', "application/json", 400), (b"1", "text/plain", 415), (b"<a/>", "text/xml", 415)],
)
def test_a_bad_body_for_a_script_without_input_fn_is_the_callers_fault(
    deploy, body, content_type, status
):
    if not deploy.answers("doubled", "[2.0, 4.0]"):
        assert deploy.endpoint("doubled")["EndpointStatus"] == "InService"
    with pytest.raises(ClientError) as refused:
        deploy.runtime.invoke_endpoint(EndpointName="doubled", Body=body, ContentType=content_type)
    answer = refused.value.response
    assert answer["OriginalStatusCode"] == status
    assert f"Received client error ({status})" in answer["Error"]["Message"]
    assert "Traceback" not in answer["OriginalMessage"]
