"""Completes the names of endpoints and jobs in a shell.

Where no server answers, nothing is completed: an error would be printed into the line.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import typer

__all__ = ["complete_endpoints", "complete_names", "complete_training", "complete_transforms"]

TIMEOUT_SECONDS = 3.0
"""for the whole list, however slowly a server sends it"""
_LONGEST_LIST = 100


def complete_endpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    return _found(_endpoints, ctx, incomplete)


def complete_training(ctx: typer.Context, incomplete: str) -> list[str]:
    return _found(_training_jobs, ctx, incomplete)


def complete_transforms(ctx: typer.Context, incomplete: str) -> list[str]:
    return _found(_transform_jobs, ctx, incomplete)


def complete_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes what has a log: endpoints and jobs of both kinds."""
    return _found(_names, ctx, incomplete)


def _found(
    names: Callable[[dict[str, Any], str], Iterator[str]], ctx: typer.Context, incomplete: str
) -> list[str]:
    options = {name: _option(ctx, name) for name in ("home", "config")}
    found: list[str] = []

    def look() -> None:
        with suppress(Exception):
            found.extend(
                [name for name in names(options, incomplete) if name.startswith(incomplete)]
            )

    # A thread that the process does not wait for: nothing else ends a call that a server answers
    # byte by byte, and botocore tries again after a time-out.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    return list(found)


def _option(ctx: typer.Context, name: str) -> Any:
    """Returns an option of the command, or one that stands before it."""
    parents: list[Any] = [ctx]
    while parents[-1].parent is not None:
        parents.append(parents[-1].parent)
    return next((each.params[name] for each in parents if each.params.get(name)), None)


def _names(options: dict[str, Any], incomplete: str) -> Iterator[str]:
    for kind in (_endpoints, _training_jobs, _transform_jobs):
        yield from kind(options, incomplete)


def _endpoints(options: dict[str, Any], incomplete: str) -> Iterator[str]:
    from sagehen.app.commands.control_client import call_control
    from sagehen.base.config import load_settings
    from sagehen.base.home import Home

    home = Home(load_settings(options["config"], home=options["home"]).home)
    status = call_control(home, "status", timeout_seconds=TIMEOUT_SECONDS)
    yield from (endpoint["name"] for endpoint in status["endpoints"])


def _training_jobs(options: dict[str, Any], incomplete: str) -> Iterator[str]:
    return _jobs("training", options, incomplete)


def _transform_jobs(options: dict[str, Any], incomplete: str) -> Iterator[str]:
    return _jobs("transform", options, incomplete)


def _jobs(kind: str, options: dict[str, Any], incomplete: str) -> Iterator[str]:
    from sagehen.app.commands.job_lists import call_sagemaker
    from sagehen.apply.client import connect_home

    aws = connect_home(options["home"], options["config"])
    filters = {"NameContains": incomplete} if incomplete else {}
    newest = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _LONGEST_LIST}
    page = call_sagemaker(aws, f"list_{kind}_jobs", **newest, **filters)
    yield from (job[f"{kind.title()}JobName"] for job in page[f"{kind.title()}JobSummaries"])
