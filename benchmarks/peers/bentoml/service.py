"""BentoML, with a configured number of workers."""

import os

import bentoml
from booster import load


@bentoml.service(
    workers=int(os.environ["BENCHMARK_WORKERS"]), logging={"access": {"enabled": False}}
)
class House:
    def __init__(self) -> None:
        self.model = load()

    @bentoml.api
    async def predict(self, row: list[float]) -> float:
        return float(self.model([row])[0])
