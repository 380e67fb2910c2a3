"""Models that the libraries of image tags have saved answer here as they did there.

`scripts/models_of_images.py` made them.
"""

import json
import logging
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import support
from sagehen.containers.modelserver.adapters import sklearn
from sagehen.containers.modelserver.adapters.shared import saved_versions
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.adapters.xgboost.adapter import adapter as xgboost_adapter

FOLDER = Path(support.__file__).parent / "models_of_images"
XGBOOST = ["0.90-2", "1.0-1", "1.2-2", "1.3-1", "1.5-1", "1.7-1", "3.0-5"]


@pytest.fixture
def unpack(base_dir, tmp_path):
    """Puts a file of a tag's archive into the model folder; returns rows and expected scores."""

    def unpacked(image, name, target):
        with tarfile.open(FOLDER / f"{image}.tar.gz") as archive:
            archive.extract(name, tmp_path, filter="data")
        shutil.move(tmp_path / name, base_dir / "model" / target)
        about = json.loads((FOLDER / f"{image}.json").read_text())
        return about["rows"], about["expected"][name]

    return unpacked


def scores(model, rows):
    body = "\n".join(",".join(map(str, row)) for row in rows).encode()
    (prediction,) = model.predict([model.decode(body, "text/csv")])
    return np.asarray(prediction).tolist()


@pytest.mark.parametrize("tag", XGBOOST)
def test_xgboost(unpack, base_dir, environment, tag):
    rows, expected = unpack(f"xgboost-{tag}", "xgboost-model", "xgboost-model")
    model = xgboost_adapter(environment("xgboost")).load(base_dir / "model")
    assert scores(model, rows) == pytest.approx(expected, abs=1e-6)


def test_a_model_of_an_xgboost_that_is_newer_is_refused(unpack, base_dir, environment):
    unpack("xgboost-3.2-0", "xgboost-model", "xgboost-model")
    with pytest.raises(ModelFileError, match=r"saved by XGBoost 3\.2\.0.*predict wrongly"):
        xgboost_adapter(environment("xgboost")).load(base_dir / "model")


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("0.23-1", "pipeline.joblib"),
        ("1.0-1", "pipeline.joblib"),
        ("1.2-1", "pipeline.joblib"),
        ("1.4-2", "pipeline.joblib"),
        ("1.4-2", "forest.joblib"),
    ],
)
def test_scikit_learn(unpack, base_dir, environment, caplog, monkeypatch, tag, name):
    monkeypatch.setattr(saved_versions, "_logged", set())
    rows, expected = unpack(f"scikit-learn-{tag}", name, "model.joblib")
    with caplog.at_level(logging.WARNING):
        model = sklearn.adapter(environment("sklearn")).load(base_dir / "model")
    assert scores(model, rows) == pytest.approx(expected)
    (line,) = caplog.messages
    assert f"was saved with scikit-learn {tag.split('-')[0]}." in line


def test_a_forest_that_scikit_learn_does_not_read_any_more_is_named(unpack, base_dir, environment):
    unpack("scikit-learn-1.2-1", "forest.joblib", "model.joblib")
    with pytest.raises(ModelFileError) as caught:
        sklearn.adapter(environment("sklearn")).load(base_dir / "model")
    message = str(caught.value)
    assert "incompatible dtype" in message
    assert "saved with scikit-learn 1.2.1, and " in message
    assert 'image_versions = "match"' in message
