"""Which containers of users run unmodified: side by side, through updates and a killed agent.

    python3 benchmarks/recipes.py --save
    python3 benchmarks/recipes.py --recipes compiled,fastapi --scenarios update
    python3 benchmarks/recipes.py --launcher docker [--docker-host unix:///var/run/docker.sock]

Run it as root and as another user: their containers are isolated in different ways. With docker,
images are built from examples/containers/*/Dockerfile, in an engine of its own if none is named;
that needs debootstrap, Debian's packages and PyPI. A cell is one
scenario of tests/support/recipe_scenarios.py: how many answers were right, how many requests were
refused meanwhile, and its seconds. A wrong answer ends a scenario; then the exit status is 1.
Recipes whose software is not installed are left out and named; RECIPES_MLFLOW_PYTHON and
RECIPES_PYTRITON_PYTHON name interpreters with mlflow and nvidia-pytriton.
"""

import argparse
import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from frame import heading, keep, row_of, some
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.deploy import Deployer
from support.docker.engine import running_engine
from support.docker.recipe_images import IMAGES, build_image, cannot_build
from support.recipe_scenarios import SCENARIOS, Bench
from support.recipes import RECIPES, Recipe
from support.server import Server, server_maker

MOST_CHARACTERS = 160
"""of a failure in a cell"""
Settings = Callable[[Recipe], dict[str, str]]
ISOLATION = ("must listen on SAGEMAKER_BIND_TO_PORT", "Walls around containers are missing")


class Row(NamedTuple):
    cells: list[str]
    failed: bool
    missing_walls: list[str]


def main() -> int:
    options = read_options()
    user = "root" if os.geteuid() == 0 else "a user without rights"
    title = f"Containers of users, launcher {options.launcher} as {user}"
    lines = [*heading(title), *describe()]
    rows, absent, failed = [], [], False
    with launcher(options) as (settings_of, missing_of):
        for name in options.recipes:
            if missing := missing_of(RECIPES[name]):
                absent.append(f"- not run: {name} (not installed: {missing})")
                continue
            row = measure(RECIPES[name], options.scenarios, settings_of(RECIPES[name]))
            print(row_of(row.cells), file=sys.stderr, flush=True)
            rows.append(row)
            failed |= row.failed
    walls = dict.fromkeys(wall for row in rows for wall in row.missing_walls)
    lines += [f"- {wall}" for wall in walls] + absent
    lines += ["", row_of(["recipe", *options.scenarios])]
    lines += [row_of(["---"] * (1 + len(options.scenarios)))]
    lines += [row_of(row.cells) for row in rows]
    report = "\n".join([*lines, ""])
    print(report)
    if options.save:
        kind = "in-docker" if options.launcher == "docker" else ""
        keep(report, f"recipes-{kind or ('as-root' if os.geteuid() == 0 else 'as-user')}")
    return int(failed)


@contextmanager
def launcher(options: argparse.Namespace) -> Iterator[tuple[Settings, Callable[[Recipe], str]]]:
    """The server's settings for a recipe, and what the recipe lacks on this machine."""
    if options.launcher == "process":
        yield (
            lambda recipe: {"images": json.dumps({recipe.name: recipe.command})},
            lambda recipe: recipe.missing(),
        )
        return
    from docker import DockerClient

    host = options.docker_host
    with running_engine() if host is None else closing(DockerClient(host)) as client:
        host = host or client.host

        def settings_of(recipe: Recipe) -> dict[str, str]:
            build_image(client, recipe.name)
            registries = json.dumps({"*.dkr.ecr.*.amazonaws.com": ""})
            return {"launcher": "docker", "docker_host": host, "docker_registries": registries}

        def missing(recipe: Recipe) -> str:
            if recipe.name not in IMAGES:
                return "it has no image"
            # Models of MLflow are made on this machine.
            return cannot_build() or (recipe.missing() if "mlflow" in recipe.name else "")

        yield settings_of, missing


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recipes", type=some(list(RECIPES)), default=list(RECIPES))
    parser.add_argument("--scenarios", type=some(list(SCENARIOS)), default=list(SCENARIOS))
    parser.add_argument("--launcher", choices=("process", "docker"), default="process")
    parser.add_argument("--docker-host", help="a Docker Engine that keeps the images")
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    return parser.parse_args()


def describe() -> list[str]:
    told = describe_machine(("sagehen",), load=False)
    return [*told, f"- user {getpass.getuser()} (uid {os.geteuid()})"]


def measure(recipe: Recipe, scenarios: Sequence[str], settings: dict[str, str]) -> Row:
    """Each recipe has a server of its own, so that none spoils the others."""
    row = Row([recipe.name], False, [])
    with server_maker() as make:
        server = make(gates=False, **settings)
        row.missing_walls.extend(missing_walls(server))
        for scenario in scenarios:
            bench = Bench(Deployer(server), recipe)
            cell, failed = run(bench, scenario)
            row.cells.append(cell)
            row = row._replace(failed=row.failed or failed)
            bench.close()
    return row


def run(bench: Bench, scenario: str) -> tuple[str, bool]:
    began = time.monotonic()
    try:
        SCENARIOS[scenario](bench)
    except AssertionError as failure:
        said = " ".join(str(failure).split())[:MOST_CHARACTERS].replace("|", "/")
        return f"FAILED: {said}", True
    refused = f", {bench.refusals} refused" if bench.refusals else ""
    return f"{bench.answers} right{refused}; {time.monotonic() - began:.0f} s", False


def missing_walls(server: Server) -> list[str]:
    log = (server.home / "logs" / "agent.log").read_text()
    told = [line for line in log.splitlines() if any(words in line for words in ISOLATION)]
    return [line.partition(": ")[2] for line in told]


if __name__ == "__main__":
    sys.exit(main())
