"""Trains small XGBoost models and packs them for SageMaker."""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

__all__ = ["Row", "TrainedModel", "pack", "train"]

Row = tuple[int | float, ...]
"""one row of features"""

_MODEL_FILE = "xgboost-model"  # the name that SageMaker's XGBoost training uses
_PARAMETERS = {
    "objective": "reg:squarederror",
    "learning_rate": 0.1,
    "seed": 7,
    # More threads do not help with small data, and hurt on a busy machine.
    "nthread": 1,
    "verbosity": 0,
}


@dataclass(frozen=True)
class TrainedModel:
    """A local model, to compare with its copy behind the endpoint."""

    name: str
    booster: Any

    @property
    def target(self) -> str:
        """The `TargetModel` of a request."""
        return f"{self.name}.tar.gz"

    def predict(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        return np.asarray(self.booster.inplace_predict(np.array(rows, np.float32)), np.float32)


def train(
    name: str,
    rows: NDArray[np.float32],
    labels: NDArray[np.float32],
    *,
    max_depth: int,
    rounds: int,
) -> TrainedModel:
    """Fits a model; equal input gives an equal model."""
    data = xgboost.DMatrix(rows, labels, nthread=_PARAMETERS["nthread"])
    booster = xgboost.train({**_PARAMETERS, "max_depth": max_depth}, data, rounds)
    return TrainedModel(name, booster)


def pack(model: TrainedModel) -> bytes:
    content = bytes(model.booster.save_raw(raw_format="ubj"))
    member = tarfile.TarInfo(_MODEL_FILE)
    member.size = len(content)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
