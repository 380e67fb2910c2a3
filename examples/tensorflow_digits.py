"""A small Keras network, trained on real data, behind an endpoint with a script of its own.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/tensorflow_digits.py
"""

import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import boto3
import keras
import numpy as np
from common import require_local_server, write_archive
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

INFERENCE = """
import json


def input_handler(data, context):
    if context.request_content_type != "application/x-image":
        return data.read()
    # One digit, a byte a pixel from 0 to 16.
    return json.dumps({"instances": [[pixel / 16 for pixel in data.read()]]})


def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.text)
    chances = response.json()["predictions"]
    digits = [max(range(10), key=row.__getitem__) for row in chances]
    return json.dumps({"digits": digits}), "application/json"
"""

require_local_server()
pixels, digits = load_digits(return_X_y=True)
train, held_out, train_digits, held_out_digits = train_test_split(pixels, digits, random_state=7)
keras.utils.set_random_seed(7)
layers = keras.layers
model = keras.Sequential(
    [layers.Input((64,)), layers.Dense(32, "relu"), layers.Dense(10, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(train / 16, train_digits, batch_size=64, epochs=20, verbose=0)

folder = Path(tempfile.mkdtemp())
model.export(folder / "1", verbose=False)  # a SavedModel, under its version
(folder / "inference.py").write_text(INFERENCE)
archive = write_archive(
    folder / "model.tar.gz", {"1": folder / "1", "code/inference.py": folder / "inference.py"}
)

s3 = boto3.client("s3")
s3.create_bucket(Bucket="digit-models")
s3.upload_file(str(archive), "digit-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="digits",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-inference:2.16-cpu",
        "ModelDataUrl": "s3://digit-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="digits",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "digits",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="digits", WaiterConfig={"Delay": 1})

runtime = boto3.client("sagemaker-runtime")
response = runtime.invoke_endpoint(
    EndpointName="digits",
    ContentType="application/json",
    Body=json.dumps({"instances": (held_out / 16).tolist()}),
)
answers = json.load(response["Body"])["digits"]
expected = model.predict(held_out / 16, verbose=0).argmax(axis=1).tolist()
assert answers == expected, "the endpoint and the model here disagree"
response = runtime.invoke_endpoint(
    EndpointName="digits",
    ContentType="application/x-image",
    Body=held_out[0].astype(np.uint8).tobytes(),
)
assert json.load(response["Body"])["digits"] == expected[:1]
right = sum(answer == digit for answer, digit in zip(answers, held_out_digits, strict=True))
print(f"{right} of {len(answers)} held-out digits read rightly, by the endpoint as by the model")

sagemaker.delete_endpoint(EndpointName="digits")
sagemaker.delete_endpoint_config(EndpointConfigName="digits")
sagemaker.delete_model(ModelName="digits")
