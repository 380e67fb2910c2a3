"""What every side is asked: rows for one XGBoost model, whose own predictions are the answers."""

import http.client
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xgboost
from load import connect
from sides import Failed, Side

ROWS = 64
ANSWER_TIMEOUT_SECONDS = 30


def make_model(folder: Path) -> tuple[Path, list[str], np.ndarray]:
    """100 trees over six features, rows to ask about, and what the model says of each."""
    generator = np.random.default_rng(7)
    data = generator.normal([1995, 3000, 4, 2, 1, 1.5], [10, 750, 1, 0.7, 0.2, 1], (20_000, 6))
    data = data.round(2)
    prices = data @ np.array([900, 150, 8_000, 12_000, 60_000, 15_000])
    booster = xgboost.train({"max_depth": 5}, xgboost.DMatrix(data, prices), 100)
    path = folder / "house.ubj"
    booster.save_model(path)
    rows = [",".join(map(str, row)) for row in data[:ROWS].tolist()]
    return path, rows, booster.inplace_predict(data[:ROWS].astype(np.float32))


def check(side: Side, rows: Sequence[str], expected: np.ndarray) -> None:
    """The side answers every row with what the model says."""
    for row, price in zip(rows, expected, strict=True):
        number = ask(side, row)
        if np.float32(number) != price:
            raise Failed(f"{side.name} answers {number}, the model says {price}.")


def ask(side: Side, row: str) -> float:
    return side.number(answer(side, row))


def answer(side: Side, row: str) -> str:
    """As the side says it."""
    with connect((side.host, side.port)) as connection:
        connection.settimeout(ANSWER_TIMEOUT_SECONDS)
        connection.sendall(side.request(row))
        response = http.client.HTTPResponse(connection, method="POST")
        response.begin()
        body = response.read().decode()
    if response.status != 200:
        raise Failed(f"{side.name} answers {response.status}: {body}")
    return body
