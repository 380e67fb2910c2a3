"""A small model of each framework for adapters.py: its file, and the framework's own call.

To add one: a function that writes a model into a folder and gives the bare call, from an array
(rows, features) to an array of one number a row; and an entry in CASES by the adapter's name.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FEATURES = 6
TREES = 100

Predict = Callable[[Any], Any]


class Case(NamedTuple):
    package: str
    """The distribution whose version is shown."""
    make: Callable[[Path], Predict]
    dtype: str = "float32"
    """The type of the array for the bare call."""


def training() -> tuple[Any, Any]:
    rows = np.random.default_rng(7).normal(size=(2000, FEATURES)).astype(np.float32)
    return rows, rows @ np.arange(1, FEATURES + 1, dtype=np.float32)


def make_xgboost(folder: Path) -> Predict:
    import xgboost

    booster = xgboost.train({"max_depth": 5, "nthread": 1}, xgboost.DMatrix(*training()), TREES)
    booster.save_model(folder / "xgboost-model.ubj")
    return booster.inplace_predict


def make_sklearn(folder: Path) -> Predict:
    import joblib
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(n_estimators=TREES, max_depth=5).fit(*training())
    joblib.dump(model, folder / "model.joblib")
    return model.predict


def make_lightgbm(folder: Path) -> Predict:
    import lightgbm

    settings = {"verbose": -1, "num_threads": 1}
    booster = lightgbm.train(settings, lightgbm.Dataset(*training()), TREES)
    booster.save_model(folder / "model.txt")
    return lambda rows: booster.predict(rows, num_threads=1)


def make_onnx(folder: Path) -> Predict:
    import onnxruntime
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor

    rows, labels = training()
    model = GradientBoostingRegressor(n_estimators=TREES, max_depth=5).fit(rows, labels)
    path = folder / "model.onnx"
    path.write_bytes(to_onnx(model, rows[:1]).SerializeToString())
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"X": rows})[0]


def make_tensorflow(folder: Path) -> Predict:
    import tensorflow

    for set_threads in (
        tensorflow.config.threading.set_intra_op_parallelism_threads,
        tensorflow.config.threading.set_inter_op_parallelism_threads,
    ):
        set_threads(1)
    layers = tensorflow.keras.layers
    tensorflow.keras.utils.set_random_seed(7)
    model = tensorflow.keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(64, "relu"), layers.Dense(1)]
    )
    model.export(str(folder / "1"), verbose=False)
    loaded = tensorflow.saved_model.load(str(folder / "1"))
    signature = loaded.signatures["serving_default"]
    (inputs,), (outputs,) = signature.structured_input_signature[1], signature.structured_outputs

    def predict(rows: Any, _loaded: Any = loaded) -> Any:
        return signature(**{inputs: tensorflow.constant(rows)})[outputs].numpy()

    return predict


CASES = {
    "xgboost": Case("xgboost-cpu", make_xgboost),
    "sklearn": Case("scikit-learn", make_sklearn),
    "lightgbm": Case("lightgbm", make_lightgbm, "float64"),
    "onnx": Case("onnxruntime", make_onnx),
    "tensorflow": Case("tensorflow-cpu", make_tensorflow),
}
