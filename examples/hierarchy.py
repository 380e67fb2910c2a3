"""Hierarchical image classification: which group is it, then which digit of that group?

A. An inference pipeline: the first container has the model of the groups, the second the models of
   the digits in each group. One call; all models are in memory.
B. The same behind one endpoint whose containers are invoked directly, the second multi-model: the
   caller asks for the group, then for the digit in it. Models are loaded as they are needed.

    sagehen up                      # in one terminal
    eval "$(sagehen env)"           # in another
    python3 examples/hierarchy.py
"""

import json
import tempfile
from pathlib import Path

import boto3
import numpy as np
from common import require_local_server, write_archive
from sklearn.datasets import load_digits

GROUPS = {"loops": (0, 6, 8, 9), "strokes": (1, 4, 7), "curves": (2, 3, 5)}
MODEL = '''
import json
from pathlib import Path

import numpy as np


def features(images):
    """Pixels, and which of them go together."""
    pixels = np.array(images) / 16
    pairs = np.einsum("ni,nj->nij", pixels[:, ::2], pixels[:, 1::2])
    return np.hstack([np.ones((len(pixels), 1)), pixels, pairs.reshape(len(pixels), -1)])


class Classifier:
    """Least squares: a score for each label, of which the greatest counts."""

    def __init__(self, path):
        stored = np.load(path)
        self.labels, self.weights = stored["labels"], stored["weights"]

    def predict(self, images):
        return self.labels[(features(images) @ self.weights).argmax(1)].tolist()


def input_fn(body, content_type):
    return json.loads(body)
'''
FIRST = (
    MODEL
    + """

def model_fn(model_dir):
    return Classifier(Path(model_dir, "groups.npz"))


def predict_fn(images, model):
    return {"images": images, "groups": model.predict(images)}
"""
)
SECOND = (
    MODEL
    + '''

def model_fn(model_dir):
    return {file.stem: Classifier(file) for file in Path(model_dir).glob("*.npz")}


def predict_fn(asked, models):
    """By the model of the group that the level before has named, image by image."""
    pairs = zip(asked["images"], asked["groups"], strict=True)
    return [models[group].predict([image])[0] for image, group in pairs]
'''
)
ONE_OF_MANY = (
    MODEL
    + """

def model_fn(model_dir):
    (file,) = Path(model_dir).glob("*.npz")
    return Classifier(file)


def predict_fn(images, model):
    return model.predict(images)
"""
)


def fit(images, labels):
    known, places = np.unique(labels, return_inverse=True)
    inputs = features(images)
    squares = inputs.T @ inputs + np.eye(inputs.shape[1])
    return {
        "labels": known,
        "weights": np.linalg.solve(squares, inputs.T @ np.eye(len(known))[places]),
    }


def upload(key, script, models):
    """An archive in S3, of a script and models by name; its address."""
    folder = Path(tempfile.mkdtemp())
    (folder / "inference.py").write_text(script)
    files = {"code/inference.py": folder / "inference.py"}
    for name, model in models.items():
        files[f"{name}.npz"] = folder / f"{name}.npz"
        np.savez(files[f"{name}.npz"], **model)
    s3.upload_file(str(write_archive(folder / "model.tar.gz", files)), "digits", key)
    return f"s3://digits/{key}"


def deploy(name, mode, *containers):
    sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
        Containers=[{"Image": "sagehen-python", **container} for container in containers],
        InferenceExecutionConfig={"Mode": mode},
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": name,
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
        ],
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def ask(endpoint, content, **target):
    answer = runtime.invoke_endpoint(
        EndpointName=endpoint, ContentType="application/json", Body=json.dumps(content), **target
    )
    return json.load(answer["Body"])


require_local_server()
s3, sagemaker, runtime = map(boto3.client, ("s3", "sagemaker", "sagemaker-runtime"))
s3.create_bucket(Bucket="digits")
script: dict = {}
exec(MODEL, script)  # the very code that runs in the containers
features = script["features"]

# Images of 8 x 8 pixels, as rows of 64 numbers from 0 to 16; the last 300 are not learned from.
images, digits = load_digits(return_X_y=True)
groups = np.array([group for digit in digits for group in GROUPS if digit in GROUPS[group]])
learned = np.arange(len(digits)) < len(digits) - 300
second_level = {}
for group in GROUPS:
    mine = learned & (groups == group)
    second_level[group] = fit(images[mine], digits[mine])

first = upload("first.tar.gz", FIRST, {"groups": fit(images[learned], groups[learned])})
second = upload("second.tar.gz", SECOND, second_level)
for group, model in second_level.items():
    upload(f"second/{group}.tar.gz", ONE_OF_MANY, {group: model})
deploy("digits-pipeline", "Serial", {"ModelDataUrl": first}, {"ModelDataUrl": second})
deploy(
    "digits-direct",
    "Direct",
    {"ContainerHostname": "group", "ModelDataUrl": first},
    {"ContainerHostname": "digit", "ModelDataUrl": "s3://digits/second/", "Mode": "MultiModel"},
)
for name in ("digits-pipeline", "digits-direct"):
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})

asked = images[~learned]
by_pipeline = np.array(ask("digits-pipeline", asked.tolist()))

found = ask("digits-direct", asked.tolist(), TargetContainerHostname="group")["groups"]
by_caller = np.zeros(len(asked), int)
for group in GROUPS:
    mine = np.array(found) == group
    by_caller[mine] = ask(
        "digits-direct",
        asked[mine].tolist(),
        TargetContainerHostname="digit",
        TargetModel=f"{group}.tar.gz",
    )

assert (by_pipeline == by_caller).all(), "the two ways disagree"
right = (by_pipeline == digits[~learned]).sum()
print(f"{right} of {len(asked)} digits named rightly, level by level, the same in both ways")

for name in ("digits-pipeline", "digits-direct"):
    sagemaker.delete_endpoint(EndpointName=name)
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    sagemaker.delete_model(ModelName=name)
