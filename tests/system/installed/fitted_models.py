"""Run in an environment that a user has just installed: estimators as tutorials fit them are saved,
deployed and answer as they did before."""

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import boto3
import joblib
import numpy as np
import pandas as pd
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

REGISTRY = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
ROLE = "arn:aws:iam::000000000000:role/any"
TABLE = pd.DataFrame(
    {"size": np.arange(60.0), "age": np.arange(60.0)[::-1] % 7, "city": ["Bern", "Kiel"] * 30}
)
PRICE = TABLE["size"] * 3 - TABLE["age"] + (TABLE["city"] == "Bern") * 20
NUMBERS = ["size", "age"]
PANDAS_SCRIPT = """
import io
import os

import joblib
import pandas as pd


def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))


def input_fn(body, content_type):
    return pd.read_csv(io.StringIO(body))
"""


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    rows = TABLE[::7]
    numbers = rows[NUMBERS].to_csv(header=False, index=False)
    for estimator, target in (
        (xgboost.XGBRegressor(n_estimators=5), PRICE),
        (xgboost.XGBClassifier(n_estimators=5), PRICE.median() < PRICE),
    ):
        name = type(estimator).__name__
        estimator.fit(TABLE[NUMBERS], target)
        estimator.save_model(folder / "xgboost-model.json")
        loaded = type(estimator)()
        loaded.load_model(folder / "xgboost-model.json")
        expected = estimator.predict(rows[NUMBERS])
        assert (loaded.predict(rows[NUMBERS]) == expected).all(), name
        if isinstance(estimator, xgboost.XGBClassifier):
            expected = estimator.predict_proba(rows[NUMBERS])[:, 1]
        deploy(name, "sagemaker-xgboost:3.0-5", {"xgboost-model": folder / "xgboost-model.json"})
        answer = [
            float(value) for value in invoke(name, numbers).replace("\n", ",").split(",") if value
        ]
        np.testing.assert_allclose(answer, expected, rtol=1e-5)
        sys.stdout.write(f"{name} saved and deployed\n")

    columns = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), ["city"]))
    pipeline = make_pipeline(columns, xgboost.XGBRegressor(n_estimators=5)).fit(TABLE, PRICE)
    joblib.dump(pipeline, folder / "model.joblib")
    (folder / "inference.py").write_text(PANDAS_SCRIPT)
    files = {"model.joblib": folder / "model.joblib", "code/inference.py": folder / "inference.py"}
    deploy("pipeline", "sagemaker-scikit-learn:1.2-1", files)
    answer = json.loads(invoke("pipeline", rows.to_csv(index=False), accept="application/json"))
    np.testing.assert_allclose(answer, pipeline.predict(rows), rtol=1e-5)
    sys.stdout.write("pipeline saved and deployed\n")


def deploy(name: str, image: str, files: dict[str, Path]) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for path, file in files.items():
            archive.add(file, path)
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    s3.create_bucket(Bucket="fitted")
    s3.put_object(Bucket="fitted", Key=f"{name}.tar.gz", Body=raw.getvalue())
    data = f"s3://fitted/{name}.tar.gz"
    container = {"Image": f"{REGISTRY}/{image}", "ModelDataUrl": data}
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "main",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})


def invoke(name: str, body: str, accept: str = "text/csv") -> str:
    runtime = boto3.client("sagemaker-runtime")
    answer = runtime.invoke_endpoint(
        EndpointName=name, ContentType="text/csv", Accept=accept, Body=body
    )
    return str(answer["Body"].read().decode())


if __name__ == "__main__":
    main()
