"""Raw rows in, prices out: a script prepares, XGBoost predicts, by the SDK's PipelineModel.

pip install "sagemaker<3"
eval "$(sagehen env)"
python3 examples/pipeline_sdk_v2.py
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import sagemaker
import xgboost
from common import CITIES, require_local_server, write_archive
from sagemaker.model import Model
from sagemaker.pipeline import PipelineModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer

PREPARE = '''
"""The first container: a city's name and figures become the numbers that the model knows."""

import json
from pathlib import Path

import numpy as np


def model_fn(model_dir):
    return json.loads(Path(model_dir, "learned.json").read_text())


def input_fn(body, content_type):
    return [line.split(",") for line in body.splitlines()]


def predict_fn(rows, learned):
    cities = np.array([[row[0] == city for city in learned["cities"]] for row in rows], float)
    figures = np.array([row[1:] for row in rows], float)
    return np.hstack([cities, (figures - learned["means"]) / learned["spreads"]])
'''

require_local_server()
folder = Path(tempfile.mkdtemp())
(folder / "inference.py").write_text(PREPARE)

# Houses with the city they are in: what a house costs depends on that too.
generator = np.random.default_rng(7)
cities = generator.choice(CITIES, 500)
figures = generator.normal([1995, 3000, 4], [10, 750, 1], (500, 3)).round(1)
prices = figures @ [20, 150, 9e3] + 1e5 * np.array([CITIES.index(city) for city in cities])
rows = [f"{city},{','.join(map(str, row))}" for city, row in zip(cities, figures, strict=True)]

means, spreads = figures.mean(0).tolist(), figures.std(0).tolist()
learned = {"cities": CITIES, "means": means, "spreads": spreads}
(folder / "learned.json").write_text(json.dumps(learned))
script: dict = {}
exec(PREPARE, script)  # the very code that runs in the container
prepared = script["predict_fn"](script["input_fn"]("\n".join(rows), "text/csv"), learned)
booster = xgboost.train({"max_depth": 4}, xgboost.DMatrix(prepared, prices), 30)
(folder / "xgboost-model").write_bytes(booster.save_raw(raw_format="ubj"))

# With a bucket and a role named here, the SDK need not ask STS who it is.
session = sagemaker.Session(default_bucket="pipeline-models")
role = "arn:aws:iam::000000000000:role/my-role"


def model(image: str, environment: dict[str, str], *files: str) -> Model:
    names = {f"code/{name}" if name.endswith(".py") else name: folder / name for name in files}
    archive = write_archive(folder / "model.tar.gz", names)
    return Model(
        image_uri=image,
        model_data=session.upload_data(str(archive), key_prefix=files[-1]),
        env=environment,
        role=role,
        sagemaker_session=session,
    )


pipeline = PipelineModel(
    models=[
        # The caller's Accept is for the last container: this one is told what to answer in.
        model(
            "sagehen-python",  # or a scikit-learn, PyTorch or Hugging Face image of AWS
            {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"},
            "inference.py",
            "learned.json",
        ),
        model(
            sagemaker.image_uris.retrieve("xgboost", session.boto_region_name, "1.7-1"),
            {},
            "xgboost-model",
        ),
    ],
    role=role,
    name="house-pipeline",
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = pipeline.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="house-pipeline",
    serializer=CSVSerializer(),
    wait=False,  # left to wait by itself, deploy() sleeps 30 s before it looks
)
session.wait_for_endpoint("house-pipeline", poll=1)

answer = predictor.predict("\n".join(rows[:5])).decode()
predicted = [float(price) for price in answer.split(",")]
print()
for row, price in zip(rows, predicted, strict=False):
    print(f"{row:36} {price:10.0f} USD")
expected = booster.predict(xgboost.DMatrix(prepared[:5]))
assert np.allclose(predicted, expected, rtol=1e-3), "the endpoint and the models here disagree"
print("5 houses priced through both containers as by both models here")

predictor.delete_endpoint()
pipeline.delete_model()
