"""A scikit-learn pipeline, trained on real data, behind an endpoint.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/sklearn_wine.py
"""

import json
import tempfile
from pathlib import Path

import boto3
import joblib
from common import require_local_server, write_archive
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

INFERENCE = """
import joblib
from pathlib import Path


def model_fn(model_dir):
    return joblib.load(Path(model_dir, "model.joblib"))
"""

require_local_server()
data, kinds = load_wine(return_X_y=True)
train, held_out, train_kinds, held_out_kinds = train_test_split(data, kinds, random_state=7)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, train_kinds)

folder = Path(tempfile.mkdtemp())
joblib.dump(model, folder / "model.joblib")
(folder / "inference.py").write_text(INFERENCE)
archive = write_archive(
    folder / "model.tar.gz",
    {"code/inference.py": folder / "inference.py", "model.joblib": folder / "model.joblib"},
)

s3 = boto3.client("s3")
s3.create_bucket(Bucket="wine-models")
s3.upload_file(str(archive), "wine-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="wine",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1",
        "ModelDataUrl": "s3://wine-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="wine",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "wine",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="wine", EndpointConfigName="wine")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="wine", WaiterConfig={"Delay": 1})

response = boto3.client("sagemaker-runtime").invoke_endpoint(
    EndpointName="wine", ContentType="application/json", Body=json.dumps(held_out.tolist())
)
answers = json.load(response["Body"])
assert answers == model.predict(held_out).tolist(), "the endpoint and the model here disagree"
right = sum(answer == kind for answer, kind in zip(answers, held_out_kinds, strict=True))
print(f"{right} of {len(answers)} held-out wines named rightly, by the endpoint as by the model")

sagemaker.delete_endpoint(EndpointName="wine")
sagemaker.delete_endpoint_config(EndpointConfigName="wine")
sagemaker.delete_model(ModelName="wine")
