"""A LightGBM model, trained on real data, behind an endpoint.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/lightgbm_diabetes.py
"""

import json
import tempfile
from pathlib import Path

import boto3
import lightgbm
import numpy as np
from common import require_local_server, write_archive
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

require_local_server()
data, progress = load_diabetes(return_X_y=True)
train, held_out, train_progress, held_out_progress = train_test_split(
    data, progress, random_state=7
)
model = lightgbm.train(
    {"verbose": -1, "learning_rate": 0.05}, lightgbm.Dataset(train, train_progress), 60
)

folder = Path(tempfile.mkdtemp())
model.save_model(folder / "model.txt")
archive = write_archive(folder / "model.tar.gz", {"model.txt": folder / "model.txt"})

s3 = boto3.client("s3")
s3.create_bucket(Bucket="diabetes-models")
s3.upload_file(str(archive), "diabetes-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="diabetes",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "sagemaker-lightgbm",
        "ModelDataUrl": "s3://diabetes-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="diabetes",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "diabetes",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="diabetes", EndpointConfigName="diabetes")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="diabetes", WaiterConfig={"Delay": 1})

rows = "\n".join(",".join(map(repr, row)) for row in held_out.tolist())
response = boto3.client("sagemaker-runtime").invoke_endpoint(
    EndpointName="diabetes", ContentType="text/csv", Body=rows
)
answers = json.load(response["Body"])["prediction"]
assert answers == model.predict(held_out).tolist(), "the endpoint and the model here disagree"
error = np.abs(np.array(answers) - held_out_progress).mean()
guess = np.abs(train_progress.mean() - held_out_progress).mean()
print(f"{len(answers)} patients: off by {error:.0f} on average, a constant guess by {guess:.0f}")

sagemaker.delete_endpoint(EndpointName="diabetes")
sagemaker.delete_endpoint_config(EndpointConfigName="diabetes")
sagemaker.delete_model(ModelName="diabetes")
