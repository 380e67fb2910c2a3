"""`sagehen offline-results`: shows the results computed in advance, and has them read again."""

import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from sagehen.app.commands.completion import complete_endpoints
from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.output import json_text, print_line, print_table, time_text
from sagehen.base.config import load_settings
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

__all__ = ["offline_results_app"]

offline_results_app = typer.Typer(
    help="Show the offline results of endpoints, and read them again.", no_args_is_help=True
)

EndpointArgument = Annotated[
    str,
    typer.Argument(help="An endpoint with offline results.", autocompletion=complete_endpoints),
]

_COLUMNS = ("Endpoint", "Variant", "State", "Keys", "Left out", "Built", "Source")
_POLL_SECONDS = 0.5


@offline_results_app.command("list")
def show_all(
    as_json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """List the offline results of all endpoints."""
    with plain_errors():
        results = call_control(_home(home, config), "offline-results")["offline_results"]
        if as_json:
            print_line(json_text(results))
        elif not results:
            print_line("No endpoint has offline results.")
        else:
            print_table([_COLUMNS, *map(_row, results)])


@offline_results_app.command()
@offline_results_app.command("describe", hidden=True)
def show(
    endpoint: EndpointArgument,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the offline results of an endpoint, and the rows that could not be read."""
    with plain_errors():
        _show(_results(_home(home, config), endpoint), as_json)


@offline_results_app.command()
def refresh(
    endpoint: EndpointArgument,
    wait: Annotated[
        bool, typer.Option(help="Return when they are read; exit with 1 if they cannot be used.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Have the objects read again; the old results answer until that is done."""
    with plain_errors():
        server_home = _home(home, config)
        call_control(server_home, f"{_path(endpoint)}/refresh", "POST")
        if not wait:
            print_line(f"The offline results of {endpoint} are read again.")
            return
        while any(each["state"] == "Building" for each in _results(server_home, endpoint)):
            time.sleep(_POLL_SECONDS)
        results = _results(server_home, endpoint)
        _show(results, in_json=False)
    if any(each["state"] != "Ready" for each in results):
        raise typer.Exit(1)


def _results(home: Home, endpoint: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call_control(home, _path(endpoint))["offline_results"]
    return found


def _path(endpoint: str) -> str:
    return f"offline-results/{quote(endpoint, safe='')}"


def _show(results: list[dict[str, Any]], in_json: bool) -> None:
    if in_json:
        print_line(json_text(results))
        return
    for each in results:
        print_line(f"{each['endpoint']}, variant {each['variant']}: {each['state']}")
        for label, value in _fields(each).items():
            if value is not None:
                print_line(f"  {label}: {value}")
        for example in each["broken_examples"]:
            print_line(f"    {example}")


def _fields(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "Failure": each["failure"],
        "Source": each["source"],
        "Key": each["key"],
        "Answer": each["answer"],
        "Key of requests": each["request_key"],
        "Runs no model": "yes" if each["only"] else None,
        "Keys": _number(each["keys"]),
        "Rows": _number(each["rows"]),
        "Bytes": _number(each["bytes"]),
        "Built": _built(each),
        "Rows left out": _number(each["broken_rows"]) if each["broken_rows"] else None,
    }


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["endpoint"],
        each["variant"],
        each["state"],
        _number(each["keys"]) or "-",
        _number(each["broken_rows"]) or "-",
        _built(each) or "-",
        each["source"],
    )


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _built(each: dict[str, Any]) -> str | None:
    at = each["built_at"]
    return None if at is None else time_text(at)


def _home(home: Any, config: Any) -> Home:
    return Home(load_settings(config, home=home).home)
