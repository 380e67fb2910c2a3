"""A scikit-learn classifier, trained on real data, as an ONNX model behind an endpoint.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/onnx_cancer.py
"""

import json
import tempfile
from pathlib import Path

import boto3
import numpy as np
from common import require_local_server, write_archive
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

require_local_server()
cells = load_breast_cancer()
kinds = cells.target_names[cells.target]
train, held_out, train_kinds, held_out_kinds = train_test_split(
    cells.data.astype(np.float32), kinds, random_state=7
)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, train_kinds)

folder = Path(tempfile.mkdtemp())
converted = to_onnx(model, train[:1], options={"zipmap": False})
(folder / "model.onnx").write_bytes(converted.SerializeToString())
archive = write_archive(folder / "model.tar.gz", {"model.onnx": folder / "model.onnx"})

s3 = boto3.client("s3")
s3.create_bucket(Bucket="cancer-models")
s3.upload_file(str(archive), "cancer-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="cancer",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "sagehen-onnx",
        "ModelDataUrl": "s3://cancer-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="cancer",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "cancer",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="cancer", EndpointConfigName="cancer")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="cancer", WaiterConfig={"Delay": 1})

response = boto3.client("sagemaker-runtime").invoke_endpoint(
    EndpointName="cancer",
    ContentType="application/json",
    Body=json.dumps({"instances": held_out.tolist()}),
)
answers = json.load(response["Body"])["predictions"]
chances = np.array([answer["probabilities"] for answer in answers])
assert np.abs(chances - model.predict_proba(held_out)).max() < 1e-5, "the model here disagrees"
right = sum(answer["label"] == kind for answer, kind in zip(answers, held_out_kinds, strict=True))
print(f"{right} of {len(answers)} held-out samples named rightly, by the ONNX model")

sagemaker.delete_endpoint(EndpointName="cancer")
sagemaker.delete_endpoint_config(EndpointConfigName="cancer")
sagemaker.delete_model(ModelName="cancer")
