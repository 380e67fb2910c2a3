"""Requests to every side: rows for one XGBoost model, whose own predictions are expected."""

import http.client
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
from load import Tally, connect, summary
from sides import Failed, Side

ROWS = 64
ANSWER_TIMEOUT_SECONDS = 30


class Question(NamedTuple):
    """A model, rows to predict, and the expected predictions."""

    model: Path
    rows: list[str]
    expected: np.ndarray


def make_model(folder: Path) -> Question:
    """100 trees over six features."""
    import xgboost

    generator = np.random.default_rng(7)
    data = generator.normal([1995, 3000, 4, 2, 1, 1.5], [10, 750, 1, 0.7, 0.2, 1], (20_000, 6))
    data = data.round(2)
    prices = data @ np.array([900, 150, 8_000, 12_000, 60_000, 15_000])
    # One thread: several, on a machine that others use too, mostly wait for one another.
    matrix = xgboost.DMatrix(data, prices, nthread=1)
    booster = xgboost.train({"max_depth": 5, "nthread": 1}, matrix, 100)
    path = folder / "house.ubj"
    booster.save_model(path)
    rows = [",".join(map(str, row)) for row in data[:ROWS].tolist()]
    return Question(path, rows, booster.inplace_predict(data[:ROWS].astype(np.float32)))


def ask_library(question: Question, seconds: float) -> dict[str, float]:
    """The bare call: what a row costs without any server, in the process that holds the model."""
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(question.model)
    booster.set_param({"nthread": 1})
    rows = cycle([np.array([row.split(",")], dtype=np.float32) for row in question.rows])
    tally = Tally()
    start = now = time.perf_counter()
    while now < start + seconds:
        booster.inplace_predict(next(rows))
        before, now = now, time.perf_counter()
        tally.milliseconds.append((now - before) * 1000)
    return summary(tally, now - start)


def check(side: Side, rows: Sequence[str], expected: np.ndarray) -> None:
    """The side answers every row with what the model says."""
    for row, price in zip(rows, expected, strict=True):
        number = ask(side, row)
        if np.float32(number) != price:
            raise Failed(f"{side.name} answers {number}, the model says {price}.")


def ask(side: Side, row: str) -> float:
    try:
        status, body = post(side, row)
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{side.name} does not answer: {error!r}") from error
    if status != 200:
        raise Failed(f"{side.name} answers {status}: {body}")
    try:
        return side.number(body)
    except (ValueError, LookupError, TypeError) as error:
        raise Failed(f"{side.name} answers {body}") from error


def post(side: Side, row: str) -> tuple[int, str]:
    with connect((side.host, side.port)) as connection:
        connection.settimeout(ANSWER_TIMEOUT_SECONDS)
        connection.sendall(side.request(row))
        response = http.client.HTTPResponse(connection, method="POST")
        response.begin()
        return response.status, response.read().decode()
