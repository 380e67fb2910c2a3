"""Scripts that use AWS's modules, as its pipeline and XGBoost examples do."""

import io
import json
import pickle
import tarfile

import pytest
from botocore.exceptions import ClientError

from support.cli import run_command
from support.deploy import ROLE

REGISTRY = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
FEATURES = """
import json, os
from io import StringIO

import joblib
import numpy as np
import pandas as pd
from sagemaker_containers.beta.framework import (
    content_types, encoders, env, modules, transformer, worker)

def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))

def input_fn(body, content_type):
    if content_type != content_types.CSV:
        return worker.Response("no CSV", status=415, mimetype="text/plain")
    return pd.read_csv(StringIO(body), header=None, names=["kind", "size"])

def predict_fn(rows, model):
    return rows if isinstance(rows, worker.Response) else model.transform(rows)

def output_fn(rows, accept):
    if isinstance(rows, worker.Response):
        return rows
    if accept == content_types.JSON:
        rows = {"instances": [{"features": row} for row in rows.tolist()]}
        return worker.Response(json.dumps(rows), mimetype=accept)
    return worker.Response(encoders.encode(rows, accept), mimetype=accept)
"""
SCORES = """
import os, pickle
import flask
from sagemaker_xgboost_container import encoder

def model_fn(model_dir):
    with open(os.path.join(model_dir, "xgboost-model"), "rb") as file:
        return pickle.load(file)

def input_fn(body, content_type):
    return encoder.decode(body, content_type)

def predict_fn(rows, model):
    return model.predict(rows)

def output_fn(scores, accept):
    return flask.Response(",".join(map(str, scores)), mimetype="text/csv")
"""


def packed(files):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return raw.getvalue()


@pytest.fixture(scope="module")
def trained():
    """The two models, and a function that predicts by both here."""
    import joblib
    import pandas as pd
    import xgboost
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows = pd.DataFrame({"kind": list("abca" * 4), "size": [float(at) for at in range(16)]})
    encode = OneHotEncoder(sparse_output=False)
    columns = [("kind", encode, ["kind"]), ("size", StandardScaler(), ["size"])]
    features = ColumnTransformer(columns).fit(rows)
    labels = rows["size"] * 2
    booster = xgboost.train(
        {"nthread": 1}, xgboost.DMatrix(features.transform(rows), label=labels), 5
    )
    dumped = io.BytesIO()
    joblib.dump(features, dumped)

    def predict(kind, size):
        row = pd.DataFrame({"kind": [kind], "size": [size]})
        return float(booster.predict(xgboost.DMatrix(features.transform(row)))[0])

    return dumped.getvalue(), pickle.dumps(booster), predict


@pytest.fixture(scope="module")
def pipeline(deploy, trained):
    features, booster, _ = trained
    archives = {
        "features": {"model.joblib": features, "code/inference.py": FEATURES.encode()},
        "scores": {"xgboost-model": booster, "code/inference.py": SCORES.encode()},
    }
    deploy.s3.create_bucket(Bucket="models")
    for name, files in archives.items():
        deploy.s3.put_object(Bucket="models", Key=f"aws/{name}.tar.gz", Body=packed(files))
    one_worker = {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
    deploy.sagemaker.create_model(
        ModelName="aws-pipeline",
        ExecutionRoleArn=ROLE,
        Containers=[
            {
                "Image": f"{REGISTRY}/sagemaker-scikit-learn:1.2-1-cpu-py3",
                "ModelDataUrl": "s3://models/aws/features.tar.gz",
                "Environment": one_worker | {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"},
            },
            {
                "Image": f"{REGISTRY}/sagemaker-xgboost:1.7-1",
                "ModelDataUrl": "s3://models/aws/scores.tar.gz",
                "Environment": one_worker,
            },
        ],
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "aws-pipeline",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="aws-pipeline", ProductionVariants=[variant]
    )
    deploy.sagemaker.create_endpoint(EndpointName="aws-pipeline", EndpointConfigName="aws-pipeline")
    described = deploy.settled("aws-pipeline")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    return deploy


def invoke(deploy, body, content_type="text/csv"):
    answer = deploy.runtime.invoke_endpoint(
        EndpointName="aws-pipeline", Body=body, ContentType=content_type
    )
    return answer["ContentType"], answer["Body"].read().decode()


def test_both_scripts_answer_as_their_models_do_here(pipeline, trained):
    _, _, predict = trained
    for kind, size in (("a", 3.0), ("c", 12.0)):
        content_type, body = invoke(pipeline, f"{kind},{size}")
        assert content_type.startswith("text/csv")
        assert float(body) == pytest.approx(predict(kind, size), abs=1e-5)


def test_a_response_keeps_its_status(pipeline):
    with pytest.raises(ClientError) as refused:
        invoke(pipeline, json.dumps([1]), "application/json")
    answer = refused.value.response
    assert (answer["OriginalStatusCode"], answer["OriginalMessage"]) == (415, "no CSV")


def test_differing_versions_are_told_where_users_look(pipeline):
    import sklearn

    (variant,) = pipeline.sagemaker.describe_endpoint(EndpointName="aws-pipeline")[
        "ProductionVariants"
    ]
    features, scores = (image["ResolvedImage"] for image in variant["DeployedImages"])
    assert features.startswith(f"sagehen/scikit-learn:scikit-learn-{sklearn.__version__}-python-")
    assert scores.startswith("sagehen/xgboost:xgboost-3.0.")
    home = pipeline.server.home
    status = run_command("status", "--home", home)
    text = f"scikit-learn {sklearn.__version__}, Python "
    assert f"aws-pipeline: {text}" in " ".join(status.stdout.split())
    log = (home / "logs" / "control.log").read_text()
    line = "The model aws-pipeline with the image {image} runs with {text}"
    image = f"{REGISTRY}/sagemaker-scikit-learn:1.2-1-cpu-py3"
    assert line.format(image=image, text=text) in log
    assert "in place of scikit-learn 1.2.1, Python 3.8." in log
