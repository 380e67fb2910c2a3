"""Containers that users have, unmodified: they listen on port 8080 and have /tmp to themselves."""

import json
from collections.abc import Iterator

import pytest

from support.deploy import Deployer
from support.recipe_scenarios import SCENARIOS, Bench
from support.recipes import RECIPES

SHARING = ("must listen on SAGEMAKER_BIND_TO_PORT", "Walls around containers are missing: files")
"""what the agent logs where the kernel lets containers have no network or no files of their own"""

CASES = (
    *(("nginx-gunicorn-flask", name) for name in ("two endpoints", "update", "two variants")),
    ("multi-model-server", "two instances"),
    ("fastapi", "two endpoints"),
    *(("compiled", name) for name in ("two instances", "kill -9 of the agent")),
    *((name, "two endpoints") for name in ("mlflow-models-serve", "mlflow-container", "pytriton")),
)


@pytest.fixture(scope="module")
def walled(make_server) -> Deployer:
    server = make_server(
        gates=False, images=json.dumps({name: RECIPES[name].command for name in RECIPES})
    )
    log = (server.home / "logs" / "agent.log").read_text()
    if missing := [line for line in log.splitlines() if any(told in line for told in SHARING)]:
        pytest.skip("; ".join(missing))
    return Deployer(server)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    recipe = RECIPES[request.param]
    if missing := recipe.missing():
        pytest.skip(f"not installed: {missing}")
    bench = Bench(request.getfixturevalue("walled"), recipe)
    yield bench
    bench.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("bench", "scenario"), CASES, indirect=["bench"])
def test_every_answer_is_the_models_own(bench: Bench, scenario: str) -> None:
    SCENARIOS[scenario](bench)
    assert bench.answers
