"""The model that every peer calls, loaded in the same way, with one thread a prediction."""

import os
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import xgboost


def load(threads: int = 1) -> Callable[[Sequence], np.ndarray]:
    """Rows in, predictions out; for a server to call once, where it predicts."""
    booster = xgboost.Booster()
    booster.load_model(os.environ["BENCHMARK_MODEL"])
    booster.set_param({"nthread": threads})
    return lambda rows: booster.inplace_predict(np.asarray(rows, dtype=np.float32))


@cache
def shared() -> Callable[[Sequence], np.ndarray]:
    """One for all calls in this process."""
    return load()
