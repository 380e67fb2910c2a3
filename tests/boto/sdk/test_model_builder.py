"""What ModelBuilder of the SageMaker SDK 2 generates runs, with and without the SDK."""

import io
import sys
import tarfile

import numpy as np
import pytest

from support.deploy import ROLE, Deployer
from support.wheels import make_wheel

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
ROWS = np.array([[1.0, 2.0], [3.0, 4.0]])
# What the SDK adds to each requirements.txt asks for, besides the SDK.
EXTRAS = {
    "accelerate": "0.27.0",
    "nest_asyncio": "1.6.0",
    "sagemaker_schema_inference_artifacts": "0.0.5",
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def parts(sdk):
    """An InferenceSpec and translators, pickled by value as those of a notebook are."""
    import cloudpickle
    from sagemaker.serve import CustomPayloadTranslator, InferenceSpec

    class Times(InferenceSpec):
        def load(self, model_dir):
            import pathlib

            return float(pathlib.Path(model_dir, "factor.txt").read_text())

        def invoke(self, input_object, model):
            return input_object * model

        def postprocess(self, predictions):
            return predictions + 1

    class Words(CustomPayloadTranslator):
        def serialize_payload_to_bytes(self, payload):
            return " ".join(str(float(cell)) for cell in payload).encode()

        def deserialize_payload_from_stream(self, stream):
            import numpy

            return numpy.array(stream.read().split(), dtype=float)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield Times, Words
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def built(sdk, aws, parts, tmp_path_factory):
    """`built(name, schema)`: a model of ModelBuilder."""
    from sagemaker.serve.builder.model_builder import ModelBuilder
    from sagemaker.serve.mode.function_pointers import Mode

    wheels = tmp_path_factory.mktemp("wheels")
    for package, version in EXTRAS.items():
        make_wheel(wheels, package, version)

    def build(name, schema):
        folder = tmp_path_factory.mktemp(name)
        (folder / "factor.txt").write_text("3")
        builder = ModelBuilder(
            model_path=str(folder),
            inference_spec=parts[0](),
            schema_builder=schema,
            role_arn=ROLE,
            image_uri=IMAGE,
            model_server=sdk.serve.ModelServer.TORCHSERVE,
            mode=Mode.SAGEMAKER_ENDPOINT,
            dependencies={"auto": False},
            env_vars={
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(wheels),
                "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
            },
        )
        return builder.build()

    return build


def deployed(model, name):
    # Left to wait by itself, deploy() looks after 30 s first.
    return model.deploy(
        initial_instance_count=1, instance_type="ml.m5.large", endpoint_name=name, wait=False
    )


def without_the_sdk(deploy, model):
    """Repacks the archive so that it names modules of the SDK 3, which is not installed."""
    bucket, _, key = model.model_data.removeprefix("s3://").partition("/")
    content = deploy.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=packed, mode="w:gz") as new,
    ):
        for member in old:
            data = b"" if not member.isfile() else old.extractfile(member).read()
            if member.name.endswith("inference.py"):
                data += b"\n# sagemaker.core\n"
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    deploy.s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())


def test_an_inference_spec_answers_with_the_sdk(sdk, aws, built):
    from sagemaker.serve import SchemaBuilder

    deploy = Deployer(aws)
    model = built("spec", SchemaBuilder(ROWS, ROWS))
    predictor = deployed(model, "spec")
    described = deploy.settled("spec")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert predictor.predict(ROWS).tolist() == (ROWS * 3 + 1).tolist()


def test_a_translator_answers_without_the_sdk(sdk, aws, built, parts):
    from sagemaker.serve import SchemaBuilder

    deploy = Deployer(aws)
    model = built("alone", SchemaBuilder(ROWS, ROWS[0], output_translator=parts[1]()))
    without_the_sdk(deploy, model)
    deployed(model, "alone")
    described = deploy.settled("alone")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    body = sdk.serializers.NumpySerializer().serialize(ROWS[0])
    answer = deploy.runtime.invoke_endpoint(
        EndpointName="alone", Body=body, ContentType="application/x-npy", Accept="text/plain"
    )
    assert answer["Body"].read() == b"4.0 7.0"
    logs = aws.home / "logs" / "endpoints" / "alone"
    assert "SageMaker SDK 3. As the SDK 2 is installed" in "".join(
        log.read_text() for log in logs.rglob("*.log")
    )
