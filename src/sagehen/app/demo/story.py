"""Runs the demo, and reports wrong results at once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from botocore.exceptions import BotoCoreError, ClientError
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from sagehen.app.demo import deployment
from sagehen.app.demo.data import (
    CITIES,
    LATER_CITY,
    Cohort,
    draw_houses,
    draw_market,
    load_cohorts,
    some_houses,
)
from sagehen.app.demo.deployment import Clients, DemoAnswer
from sagehen.app.demo.figures import CohortResult, cohort_table, fetch_when_counted, summary_table
from sagehen.app.demo.training import Row, TrainedModel, pack, train

__all__ = ["Checks", "run"]


class Checks:
    """Counts checks and keeps the faults found."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.count = 0
        self.faults: list[str] = []

    @property
    def sound(self) -> bool:
        return not self.faults

    def expect(self, right: bool, fault: str) -> None:
        self.count += 1
        if not right:
            self.faults.append(fault)
            self._console.print(f"  [red]wrong:[/red] {escape(fault)}")

    def same(self, target: str, actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
        """Expects equal predictions, float for float."""
        self.expect(
            np.array_equal(actual, expected),
            f"{target} answered {actual.tolist()}, but the model itself says {expected.tolist()}.",
        )


T = TypeVar("T")

_HOUSES_PER_CITY = 2_000
_WARM_CALLS = 300


@dataclass
class _Demo:
    clients: Clients
    console: Console
    checks: Checks
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(2020))
    models: dict[str, TrainedModel] = field(default_factory=dict)
    """uploaded, by name"""
    houses: dict[str, list[Row]] = field(default_factory=dict)
    """by city"""
    cold: dict[str, float] = field(default_factory=dict)
    """milliseconds of each model's first call"""
    invocations: int = 0


def run(endpoint_url: str, access_key: str, secret: str, region: str, console: Console) -> bool:
    """Runs the demo; returns whether all checks passed. Leaves the endpoint in service."""
    clients = deployment.connect(endpoint_url, access_key, secret, region)
    demo = _Demo(clients, console, Checks(console))
    started = time.perf_counter()
    try:
        deployment.forget(clients)
        cohorts = _train_and_upload(demo)
        _deploy(demo)
        _price_houses(demo)
        _add_a_city(demo)
        _predict_patients(demo, cohorts)
        _sum_up(demo, endpoint_url, _invoke_at_random(demo))
    except (ClientError, BotoCoreError, OSError, RuntimeError, ValueError) as error:
        console.print(f"[red]The demo stopped at an error:[/red] {escape(str(error))}")
        return False
    return _conclude(demo, time.perf_counter() - started)


def _train_and_upload(demo: _Demo) -> list[Cohort]:
    cities = _timed(
        demo,
        f"Training a model for each of {len(CITIES)} cities, on synthetic house prices",
        lambda: [_train_city(demo, city) for city in CITIES],
    )
    cohorts = load_cohorts()
    patients = _timed(
        demo,
        f"Training a model for each of {len(cohorts)} groups of real diabetes patients",
        lambda: [_train_cohort(cohort) for cohort in cohorts],
    )
    _timed(
        demo,
        f"Uploading the models' archives to s3://{deployment.BUCKET}/{deployment.PREFIX}",
        lambda: _upload(demo, *cities, *patients),
    )
    return cohorts


def _train_city(demo: _Demo, city: str) -> TrainedModel:
    market = draw_market(demo.generator)
    rows, prices = draw_houses(market, _HOUSES_PER_CITY, demo.generator)
    demo.houses[city] = some_houses(market, 4, demo.generator)
    return train(city, rows, prices, max_depth=5, rounds=100)


def _train_cohort(cohort: Cohort) -> TrainedModel:
    # Deeper trees overfit the cohort's eighty or so patients.
    return train(cohort.name, cohort.rows, cohort.labels, max_depth=1, rounds=60)


def _upload(demo: _Demo, *models: TrainedModel) -> None:
    for model in models:
        deployment.upload(demo.clients, model.target, pack(model))
        demo.models[model.name] = model


def _deploy(demo: _Demo) -> None:
    demo.console.print(
        f"Creating the multi-model endpoint {demo.clients.name} with "
        f"{deployment.INSTANCE_COUNT} instances ... ",
        end="",
    )
    seconds = deployment.deploy(demo.clients)
    demo.console.print(f"in service after [bold]{seconds:.2f} s[/bold].\n")


def _price_houses(demo: _Demo) -> None:
    for city, number in (
        ("Houston_TX", 0),
        ("Chicago_IL", 0),
        ("Chicago_IL", 1),
        ("Houston_TX", 1),
    ):
        _price_a_house(demo, city, demo.houses[city][number])
    for city in CITIES[2:]:
        _predict(demo, demo.models[city], demo.houses[city][:1])


def _price_a_house(demo: _Demo, city: str, house: Row) -> None:
    model = demo.models[city]
    temperature = "warm" if city in demo.cold else "cold"
    answer = _predict(demo, model, [house])
    demo.console.print(
        f"Using model {model.target} to predict price of this house:\n"
        f"{list(house)}\n"
        f"[bold]{answer.predictions[0]:.2f} USD[/bold], "
        f"took {answer.milliseconds:.1f} ms ({temperature})"
    )


def _add_a_city(demo: _Demo) -> None:
    model = _train_city(demo, LATER_CITY)
    _upload(demo, model)
    demo.console.print(
        f"\nUploaded {model.target} while the endpoint is running; it can be invoked at once."
    )
    _price_a_house(demo, LATER_CITY, demo.houses[LATER_CITY][0])
    demo.console.print()


def _predict_patients(demo: _Demo, cohorts: Sequence[Cohort]) -> None:
    results = []
    for cohort in cohorts:
        model = demo.models[cohort.name]
        answer = _predict(demo, model, cohort.held_out_rows)
        result = CohortResult(
            target=model.target,
            trained_on=len(cohort.labels),
            held_out=len(cohort.held_out_labels),
            mean_error=cohort.mean_error(answer.predictions),
            baseline_error=cohort.baseline_error,
            milliseconds=answer.milliseconds,
        )
        demo.checks.expect(
            result.mean_error < result.baseline_error,
            f"{model.target} is off by {result.mean_error:.1f} on average, which is no better than "
            f"the baseline's {result.baseline_error:.1f}.",
        )
        results.append(result)
    demo.console.print(cohort_table(results))


def _invoke_at_random(demo: _Demo) -> list[float]:
    demo.console.print(f"\nInvoking models in random order, {_WARM_CALLS} times ... ", end="")
    started = time.perf_counter()
    names = sorted(demo.houses)
    milliseconds = [
        _predict(demo, demo.models[name], demo.houses[name][:1]).milliseconds
        for name in demo.generator.choice(names, _WARM_CALLS).tolist()
    ]
    demo.console.print(f"{time.perf_counter() - started:.2f} s.\n")
    return milliseconds


def _predict(demo: _Demo, model: TrainedModel, rows: Sequence[Row]) -> DemoAnswer:
    answer = deployment.invoke(demo.clients, model.target, rows)
    demo.invocations += 1
    demo.cold.setdefault(model.name, answer.milliseconds)
    demo.checks.same(model.target, answer.predictions, model.predict(rows))
    return answer


def _sum_up(demo: _Demo, endpoint_url: str, warm: Sequence[float]) -> None:
    models = len(demo.models)
    figures = fetch_when_counted(endpoint_url, demo.clients.name, demo.invocations)
    demo.console.print(summary_table(models, figures, list(demo.cold.values()), warm))
    demo.checks.expect(
        figures.cache_lookups == demo.invocations,
        f"{demo.invocations} requests were made, but the server counted {figures.cache_lookups}.",
    )
    demo.checks.expect(
        figures.models_loaded >= models,
        f"{models} models were asked, but the server holds {figures.models_loaded}.",
    )
    demo.checks.expect(
        figures.cache_hits == demo.invocations - models,
        f"{demo.invocations - models} requests should have found their model loaded; "
        f"the server counted {figures.cache_hits}.",
    )
    demo.checks.expect(figures.memory_bytes > 0, "The server knows of no memory in use.")


def _conclude(demo: _Demo, seconds: float) -> bool:
    checks = demo.checks
    if checks.sound:
        demo.console.print(
            f"[green]All {checks.count} checks passed[/green] in {seconds:.1f} s: every answer of "
            "the endpoint equals, float for float, what the model answers when called directly."
        )
    else:
        demo.console.print(f"[red]{len(checks.faults)} of {checks.count} checks failed.[/red]")
    return checks.sound


def _timed(demo: _Demo, title: str, work: Callable[[], T]) -> T:
    demo.console.print(f"{title} ... ", end="")
    started = time.perf_counter()
    result = work()
    demo.console.print(f"{time.perf_counter() - started:.2f} s.")
    return result
