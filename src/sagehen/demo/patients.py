"""Real patients in cohorts: the diabetes data of Efron et al. (2004), which scikit-learn carries.

442 patients, ten measurements each, and how far the disease had gone one year later (25 to 346).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from sagehen.demo.training import Row

__all__ = ["Cohort", "load_cohorts"]

_AGE, _SEX = 0, 1
# Two bands: with three, the smallest cohort has 40 patients to learn from, and on a third of 30
# splits some cohort's model was worse than its baseline. With two, none was.
_AGE_BANDS = (("under50", 0, 50), ("from50", 50, 200))
_HELD_OUT_SHARE = 0.25


@dataclass(frozen=True)
class Cohort:
    """Patients of one sex and age band, some of them kept from training."""

    name: str
    rows: NDArray[np.float32]
    labels: NDArray[np.float32]
    held_out_rows: list[Row]
    held_out_labels: NDArray[np.float32]

    def mean_error(self, predictions: NDArray[np.float32]) -> float:
        """The mean absolute error of `predictions` for the held-out patients."""
        return float(np.abs(predictions - self.held_out_labels).mean())

    @property
    def baseline_error(self) -> float:
        """The error of always answering the training patients' average: what a model must beat."""
        return self.mean_error(np.full_like(self.held_out_labels, self.labels.mean()))


def load_cohorts() -> list[Cohort]:
    """Every cohort; always split in the same way."""
    data, labels = load_diabetes(return_X_y=True, scaled=False)
    generator = np.random.default_rng(7)
    cohorts = []
    for sex in (1, 2):  # the data set does not say which is which
        for band, youngest, too_old in _AGE_BANDS:
            age = data[:, _AGE]
            inside = (data[:, _SEX] == sex) & (youngest <= age) & (age < too_old)
            order = generator.permutation(np.flatnonzero(inside))
            cohorts.append(_split(f"patients/sex{sex}-{band}", data[order], labels[order]))
    return cohorts


def _split(name: str, rows: NDArray[np.float64], labels: NDArray[np.float64]) -> Cohort:
    held_out = round(len(rows) * _HELD_OUT_SHARE)
    return Cohort(
        name=name,
        rows=rows[held_out:].astype(np.float32),
        labels=labels[held_out:].astype(np.float32),
        held_out_rows=[tuple(row) for row in rows[:held_out].tolist()],
        held_out_labels=labels[:held_out].astype(np.float32),
    )
