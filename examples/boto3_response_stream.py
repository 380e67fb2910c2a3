"""An answer that is read while it is made: words as a script finds them.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/boto3_response_stream.py
"""

import tempfile
from pathlib import Path

import boto3
from common import require_local_server, write_archive

INFERENCE = '''
"""Tells a story word by word, as a language model would."""

import time


def model_fn(model_dir):
    return "Sagehens dance at dawn and go back to work when the sun is up.".split()


def input_fn(body, content_type):
    return int(body)


def predict_fn(length, words):
    for word in words[:length]:
        time.sleep(0.1)
        yield word + " "
'''

require_local_server()
folder = Path(tempfile.mkdtemp())
(folder / "inference.py").write_text(INFERENCE)
archive = write_archive(folder / "model.tar.gz", {"code/inference.py": folder / "inference.py"})

s3 = boto3.client("s3")
s3.create_bucket(Bucket="story-models")
s3.upload_file(str(archive), "story-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="story",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "sagehen-python",
        "ModelDataUrl": "s3://story-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="story",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "story",
            "InstanceType": "ml.t2.medium",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="story", EndpointConfigName="story")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="story", WaiterConfig={"Delay": 1})

response = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
    EndpointName="story", ContentType="text/plain", Accept="text/plain", Body="9"
)
for event in response["Body"]:
    print(event["PayloadPart"]["Bytes"].decode(), end="", flush=True)
print()

sagemaker.delete_endpoint(EndpointName="story")
sagemaker.delete_endpoint_config(EndpointConfigName="story")
sagemaker.delete_model(ModelName="story")
