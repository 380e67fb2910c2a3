"""Synthetic houses, one market per city, in the form of the article that the demo retells."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sagehen.demo.training import Row

__all__ = [
    "CITIES",
    "FEATURES",
    "LATER_CITY",
    "Market",
    "draw_houses",
    "draw_market",
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
"""The one whose model is added while the endpoint runs."""
_THIS_YEAR = 2019  # the article's


@dataclass(frozen=True)
class Market:
    """What a house is worth in one city, in USD."""

    per_square_foot: float
    per_acre: float
    per_year_of_age: float


def draw_market(generator: np.random.Generator) -> Market:
    """A city's prices; cities differ, which is why each has a model of its own."""
    return Market(
        per_square_foot=generator.uniform(110, 320),
        per_acre=generator.uniform(10_000, 90_000),
        per_year_of_age=generator.uniform(500, 3_000),
    )


def draw_houses(
    market: Market, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`count` houses as rows of FEATURES, and what each was sold for in USD."""
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
    # No two buyers pay the same for the same house.
    price = price * generator.normal(1, 0.02, count)
    rows = np.stack([year, feet, bedrooms, bathrooms, acres, garage], axis=1)
    return rows.astype(np.float32), price.astype(np.float32)


def some_houses(market: Market, count: int, generator: np.random.Generator) -> list[Row]:
    """Houses to ask about, each as the plain numbers that a client would send."""
    rows, _ = draw_houses(market, count, generator)
    return [_as_plain_numbers(row) for row in rows.astype(float)]


def _as_plain_numbers(house: NDArray[np.float64]) -> Row:
    year, feet, bedrooms, bathrooms, acres, garage = house.tolist()
    return (int(year), int(feet), int(bedrooms), bathrooms, round(acres, 2), int(garage))
