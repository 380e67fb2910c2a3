"""The predictors of batching.py's peers: lists of questions in, arrays of answers out.

A question is a row of numbers, or a text.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np

Predictor = Callable[[Sequence], np.ndarray]


def load() -> Predictor:
    """Returns a predictor; a server calls this once, in the process that predicts."""
    return LOADERS[os.environ["BENCHMARK_KIND"]](os.environ["BENCHMARK_MODEL"])


def asks_texts() -> bool:
    return os.environ["BENCHMARK_KIND"] == "huggingface"


def load_xgboost(path: str) -> Predictor:
    from booster import load as load_booster

    return load_booster()


def load_sklearn(path: str) -> Predictor:
    import joblib

    forest = joblib.load(path)
    return lambda rows: forest.predict(np.asarray(rows, dtype=np.float32))


def load_onnx(path: str) -> Predictor:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda rows: session.run(None, {name: np.asarray(rows, dtype=np.float32)})[0]


def load_huggingface(path: str) -> Predictor:
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    features = pipeline("feature-extraction", model=path)

    def predict(texts: Sequence) -> np.ndarray:
        with torch.inference_mode():
            found = features(list(texts), batch_size=len(texts), return_tensors=True)
        return np.stack([one[None].numpy() if one.ndim == 2 else one.numpy() for one in found])

    return predict


LOADERS = {
    "xgboost": load_xgboost,
    "sklearn": load_sklearn,
    "onnx": load_onnx,
    "huggingface": load_huggingface,
}
