"""Trains the models in tests/support/models_of_images, with the libraries of an image's tag.

    PYTHON scripts/models_of_images.py FAMILY TAG

PYTHON has the versions that src/sagehen/frame/image_versions.csv names for the tag, such as Python
3.8 with XGBoost 1.5.2, so this file is written for Python 3.7 and later.
"""

import io
import json
import pickle
import sys
import tarfile
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "tests/support/models_of_images"


def main(family, tag):
    random = np.random.RandomState(7)
    cells = random.rand(200, 4).astype("float32")
    labels = cells[:, 0] * 3 + cells[:, 1] ** 2 - cells[:, 2] * cells[:, 3]
    rows = cells[:5].round(3)
    train = train_xgboost if family == "xgboost" else train_scikit_learn
    files, version, expected = train(cells, labels, rows)
    about = {"version": version, "rows": rows.astype("float64").round(3).tolist()}
    about["expected"] = expected
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(str(FOLDER / f"{family}-{tag}.tar.gz"), "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (FOLDER / f"{family}-{tag}.json").write_text(json.dumps(about) + "\n")


def train_xgboost(cells, labels, rows):
    """Saves as AWS's container does: without an extension; pickled before 1.0."""
    import xgboost

    settings = {"objective": "reg:squarederror", "max_depth": 3, "nthread": 1, "base_score": 0.5}
    booster = xgboost.train(settings, xgboost.DMatrix(cells, label=labels), 6)
    expected = booster.predict(xgboost.DMatrix(rows)).tolist()
    path = FOLDER / "xgboost-model"
    if xgboost.__version__.startswith("0."):
        content = pickle.dumps(booster, protocol=2)
    else:
        booster.save_model(str(path))
        content = path.read_bytes()
        path.unlink()
    return {"xgboost-model": content}, xgboost.__version__, {"xgboost-model": expected}


def train_scikit_learn(cells, labels, rows):
    import joblib
    import sklearn
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    files, expected = {}, {}
    models = {
        "pipeline.joblib": make_pipeline(StandardScaler(), Ridge()),
        "forest.joblib": RandomForestRegressor(n_estimators=3, max_depth=3, random_state=1),
    }
    for name, model in models.items():
        model.fit(cells, labels)
        content = io.BytesIO()
        joblib.dump(model, content, compress=3)
        files[name] = content.getvalue()
        expected[name] = model.predict(rows).tolist()
    return files, sklearn.__version__, expected


if __name__ == "__main__":
    main(*sys.argv[1:])
