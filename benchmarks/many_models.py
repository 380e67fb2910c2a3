"""Many small XGBoost models, no two alike: a few are trained, the others varied, in seconds."""

import io
import json
import random
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xgboost

TREES = (10, 25, 50, 100)
"""numbers of trees of the trained models"""
DEPTH = 4
ROWS = 64


@dataclass(frozen=True)
class Catalog:
    """Models by number, rows to predict, and expected predictions."""

    models: list[bytes]
    """Each the content of a file that XGBoost saved."""
    rows: list[str]
    expected: np.ndarray
    """By model and row."""

    def question(self, number: int) -> str:
        """A request to a model: its number and a row, which `expects` parses again."""
        return f"{number} {self.rows[number % ROWS]}"

    def expects(self, number: int) -> np.float32:
        """The answer to `question(number)`."""
        return np.float32(self.expected[number % len(self.models), number % ROWS])

    def model(self, number: int) -> bytes:
        return self.models[number % len(self.models)]


def make_catalog(count: int) -> Catalog:
    """`count` models, which differ in their trees or in what these are added to."""
    generator = np.random.default_rng(7)
    data = generator.normal([1995, 3000, 4, 2, 1, 1.5], [10, 750, 1, 0.7, 0.2, 1], (2_000, 6))
    data = data.round(2)
    prices = data @ np.array([900, 150, 8_000, 12_000, 60_000, 15_000])
    rows = data[:ROWS].astype(np.float32)
    trained = [
        xgboost.train({"max_depth": DEPTH, "nthread": 1}, xgboost.DMatrix(data, prices), trees)
        for trees in TREES
    ]
    texts = [json.loads(booster.save_raw("json")) for booster in trained]
    booster = xgboost.Booster({"nthread": 1})
    models, expected = [], []
    for number in range(count):
        text = texts[number % len(texts)]
        text["learner"]["learner_model_param"]["base_score"] = f"[{400_000 + number}]"
        booster.load_model(bytearray(json.dumps(text).encode()))
        models.append(bytes(booster.save_raw("ubj")))
        expected.append(booster.inplace_predict(rows))
    row_texts = [",".join(map(str, row)) for row in data[:ROWS].tolist()]
    return Catalog(models, row_texts, np.array(expected))


def archive(model: bytes) -> bytes:
    """Returns a model archive as SageMaker stores it: a tar.gz with one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("xgboost-model")
        member.size = len(model)
        tar.addfile(member, io.BytesIO(model))
    return packed.getvalue()


def write_models(catalog: Catalog, count: int, folder: Path) -> None:
    """`0.ubj` and so on."""
    for number in range(count):
        (folder / f"{number}.ubj").write_bytes(catalog.model(number))


def uniform(models: int, draws: int) -> list[int]:
    """Numbers of models, each as likely as any other."""
    chance = random.Random(11)
    return [chance.randrange(models) for _ in range(draws)]


def zipf(models: int, draws: int) -> list[int]:
    """Numbers of models, the k-th of some order asked for 1/k times as often as the first."""
    chance = random.Random(12)
    order = list(range(models))
    chance.shuffle(order)
    return chance.choices(order, [1 / rank for rank in range(1, models + 1)], k=draws)
