"""Batch transform by the unmodified SageMaker Python SDK, version 2: `Transformer`."""

import pytest

from support.deploy import IMAGE, ROLE

# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")

UPPER = """
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    print("worked on", len(data), "bytes")
    data = data.encode() if isinstance(data, str) else data
    return data.upper(), "text/csv"
"""


@pytest.fixture(scope="module")
def session(sdk, aws):
    aws.client("s3").create_bucket(Bucket="sdk-transform")
    return sdk.Session(default_bucket="sdk-transform")


def test_a_transformer_waits_with_the_log(sdk, session, deploy, aws, capfd):
    s3 = aws.client("s3")
    s3.put_object(Bucket="sdk-transform", Key="in/a.csv", Body=b"one\ntwo\n")
    s3.put_object(Bucket="sdk-transform", Key="in/b.csv", Body=b"three\n")
    model = sdk.model.Model(
        image_uri=IMAGE,
        model_data=deploy.upload("sdk-transform/model.tar.gz", UPPER),
        role=ROLE,
        sagemaker_session=session,
    )
    transformer = model.transformer(
        instance_count=1,
        instance_type="ml.m5.large",
        strategy="MultiRecord",
        assemble_with="Line",
        accept="text/csv",
        output_path="s3://sdk-transform/out",
        env={"NOTE": "x"},
    )
    data = "s3://sdk-transform/in/"
    transformer.transform(data, content_type="text/csv", split_type="Line", wait=False, logs=False)
    name = transformer.latest_transform_job.name
    # What `wait=True, logs=True` does every 10 s.
    session.logs_for_transform_job(name, wait=True, poll=0.5)
    read = {
        name: s3.get_object(Bucket="sdk-transform", Key=f"out/{name}")["Body"].read()
        for name in ("a.csv.out", "b.csv.out")
    }
    assert read == {"a.csv.out": b"ONE\nTWO\n", "b.csv.out": b"THREE\n"}
    assert "worked on" in capfd.readouterr().out
    attached = sdk.transformer.Transformer.attach(name, session)
    assert (attached.strategy, attached.output_path) == ("MultiRecord", "s3://sdk-transform/out")
