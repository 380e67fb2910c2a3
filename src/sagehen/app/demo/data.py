"""The demo's data: synthetic houses, and real patients from scikit-learn's diabetes data.

Efron et al. (2004) measured 442 patients, and the disease's progression after a year (25 to 346).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from sagehen.app.demo.training import Row

__all__ = [
    "CITIES",
    "FEATURES",
    "LATER_CITY",
    "Cohort",
    "Market",
    "draw_houses",
    "draw_market",
    "load_cohorts",
    "some_houses",
]

FEATURES = (
    "year_built",
    "square_feet",
    "num_bedrooms",
    "num_bathrooms",
    "lot_acres",
    "garage_spaces",
)
CITIES = (
    "Houston_TX",
    "Chicago_IL",
    "LosAngeles_CA",
    "Dallas_TX",
    "Phoenix_AZ",
    "Philadelphia_PA",
    "SanAntonio_TX",
    "SanDiego_CA",
    "SanFrancisco_CA",
)
LATER_CITY = "NewYork_NY"
"""added while the endpoint runs"""
_THIS_YEAR = 2019  # the article's


@dataclass(frozen=True)
class Market:
    """A city's prices, in USD."""

    per_square_foot: float
    per_acre: float
    per_year_of_age: float


def draw_market(generator: np.random.Generator) -> Market:
    return Market(
        per_square_foot=generator.uniform(110, 320),
        per_acre=generator.uniform(10_000, 90_000),
        per_year_of_age=generator.uniform(500, 3_000),
    )


def draw_houses(
    market: Market, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns rows of FEATURES, and prices in USD."""
    year = np.minimum(generator.normal(1995, 10, count).astype(int), _THIS_YEAR)
    feet = np.maximum(generator.normal(3000, 750, count).astype(int), 400)
    bedrooms = generator.integers(2, 7, count)
    bathrooms = generator.integers(2, 7, count) / 2
    acres = np.maximum(generator.normal(1.0, 0.25, count).round(2), 0.05)
    garage = generator.integers(0, 4, count)
    price = (
        market.per_square_foot * feet
        + market.per_acre * acres
        - market.per_year_of_age * (_THIS_YEAR - year)
        + 10_000 * bedrooms
        + 15_000 * bathrooms
        + 15_000 * garage
    )
    # buyers differ
    price = price * generator.normal(1, 0.02, count)
    rows = np.stack([year, feet, bedrooms, bathrooms, acres, garage], axis=1)
    return rows.astype(np.float32), price.astype(np.float32)


def some_houses(market: Market, count: int, generator: np.random.Generator) -> list[Row]:
    rows, _ = draw_houses(market, count, generator)
    return [_as_plain_numbers(row) for row in rows.astype(float)]


def _as_plain_numbers(house: NDArray[np.float64]) -> Row:
    year, feet, bedrooms, bathrooms, acres, garage = house.tolist()
    return (int(year), int(feet), int(bedrooms), bathrooms, round(acres, 2), int(garage))


_AGE, _SEX = 0, 1
# Two bands: with three, the smallest cohort trains on 40 patients, and in a third of 30 splits some
# model was worse than its baseline.
_AGE_BANDS = (("under50", 0, 50), ("from50", 50, 200))
_HELD_OUT_SHARE = 0.25


@dataclass(frozen=True)
class Cohort:
    """Patients of one sex and age band, some held out of training."""

    name: str
    rows: NDArray[np.float32]
    labels: NDArray[np.float32]
    held_out_rows: list[Row]
    held_out_labels: NDArray[np.float32]

    def mean_error(self, predictions: NDArray[np.float32]) -> float:
        """The mean absolute error for held-out patients."""
        return float(np.abs(predictions - self.held_out_labels).mean())

    @property
    def baseline_error(self) -> float:
        """The error of always predicting the training average."""
        return self.mean_error(np.full_like(self.held_out_labels, self.labels.mean()))


def load_cohorts() -> list[Cohort]:
    data, labels = load_diabetes(return_X_y=True, scaled=False)
    generator = np.random.default_rng(7)
    cohorts = []
    for sex in (1, 2):  # the data set does not name them
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
