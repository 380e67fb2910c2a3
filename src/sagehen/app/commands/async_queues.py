"""`sagehen async`: manages the queues of asynchronous endpoints."""

import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from sagehen.app.commands.completion import complete_endpoints
from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.output import json_text, print_line, print_table, time_text
from sagehen.base.config import load_settings
from sagehen.base.errors import Invalid
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

__all__ = ["async_app"]

async_app = typer.Typer(help="Manage the queues of asynchronous endpoints.", no_args_is_help=True)

EndpointArgument = Annotated[
    str, typer.Argument(help="An asynchronous endpoint.", autocompletion=complete_endpoints)
]
IdArgument = Annotated[str, typer.Argument(help="The InferenceId of a request.")]

_DRAIN_POLL_SECONDS = 0.5
_COLUMNS = ("Endpoint", "Mode", "Queued", "In process")


@async_app.command("list")
def show_all(
    as_json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """List the queues of all asynchronous endpoints."""
    with plain_errors():
        endpoints = call_control(_home(home, config), "status")["endpoints"]
        queues = [
            {"endpoint": endpoint["name"], **endpoint["queue"]}
            for endpoint in endpoints
            if endpoint["queue"]
        ]
        if as_json:
            print_line(json_text(queues))
        elif not queues:
            print_line("There are no asynchronous endpoints.")
        else:
            print_table([_COLUMNS, *(tuple(map(str, queue.values())) for queue in queues)])


@async_app.command()
@async_app.command("status", hidden=True)
def show(
    endpoint: EndpointArgument,
    inference_id: Annotated[
        str | None, typer.Argument(help="The InferenceId of a request; else the whole queue.")
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the state of a queue, or of a request in it."""
    with plain_errors():
        server_home = _home(home, config)
        if inference_id is None:
            _show_queue(call_control(server_home, _path(endpoint)), as_json)
        else:
            _show_requests(
                call_control(server_home, _path(endpoint, "requests", inference_id)), as_json
            )


@async_app.command()
def cancel(
    endpoint: EndpointArgument,
    inference_id: IdArgument,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Cancel a request that waits or is being processed."""
    with plain_errors():
        path = _path(endpoint, "requests", inference_id)
        _show_requests(call_control(_home(home, config), path, "DELETE"), as_json)


@async_app.command()
def failures(
    endpoint: EndpointArgument,
    after: Annotated[int, typer.Option(min=0, help="Start after this sequence number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show requests that failed, expired or were cancelled, the oldest first."""
    with plain_errors():
        path = f"{_path(endpoint, 'failures')}?after={after}&limit={limit}"
        page = call_control(_home(home, config), path)
        _show_requests({"requests": page["failures"]} | page, as_json)
        if page["next"] is not None and not as_json:
            print_line(f"There are more: --after {page['next']}")


@async_app.command()
def redrive(
    endpoint: EndpointArgument,
    inference_id: Annotated[
        str | None, typer.Argument(help="The InferenceId of a request that failed.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every request that failed.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Queue requests again that failed, expired or were cancelled."""
    with plain_errors():
        if every == (inference_id is not None):
            raise Invalid("Give either an InferenceId or --all.")
        server_home, path = _home(home, config), _path(endpoint, "redrive")
        count, after = 0, 0
        selection = {} if inference_id is None else {"inference_id": inference_id}
        while after is not None:
            answer = call_control(server_home, path, "POST", selection | {"after": after})
            count, after = count + answer["redriven"], answer["next"]
        print_line(f"{count} queued again.")


@async_app.command()
def pause(endpoint: EndpointArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Keep accepting requests, but process none until `resume`."""
    _set_mode(endpoint, "pause", home, config)


@async_app.command()
def resume(
    endpoint: EndpointArgument, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """Accept and process requests again, after `pause` or `drain`."""
    _set_mode(endpoint, "resume", home, config)


@async_app.command()
def drain(
    endpoint: EndpointArgument,
    wait: Annotated[bool, typer.Option(help="Return when nothing is left.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Refuse new requests, and process those that wait."""
    _set_mode(endpoint, "drain", home, config)
    with plain_errors():
        server_home = _home(home, config)
        while wait and _open_requests(call_control(server_home, _path(endpoint))):
            time.sleep(_DRAIN_POLL_SECONDS)


def _set_mode(endpoint: str, verb: str, home: Path | None, config: Path | None) -> None:
    with plain_errors():
        _show_queue(call_control(_home(home, config), _path(endpoint, verb), "POST"), False)


def _home(home: Path | None, config: Path | None) -> Home:
    return Home(load_settings(config, home=home).home)


def _path(*parts: str) -> str:
    return "/".join(("async", *(quote(part, safe="") for part in parts)))


def _open_requests(queue: dict[str, Any]) -> int:
    return int(queue["queued"]) + int(queue["in_process"])


def _show_queue(queue: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_line(json_text(queue))
        return
    oldest = _time(queue["oldest_received_at"])
    oldest_text = f", the oldest since {oldest}" if oldest else ""
    print_line(
        f"{queue['endpoint']} is {queue['mode']}: {queue['queued']} queued, "
        f"{queue['in_process']} in process{oldest_text}."
    )


def _show_requests(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_line(json_text(answer))
        return
    for request in answer["requests"]:
        print_line(_describe(request))


def _describe(request: dict[str, Any]) -> str:
    fields = {
        "position": request["position"],
        "attempts": request["attempts"] or None,
        "received": _time(request["received_at"]),
        "started": _time(request["started_at"]),
        "ended": _time(request["ended_at"]),
        "input": request["input_location"] or "inline",
        "object": request["location"],
        "reason": request["failure_reason"],
    }
    cancelling = " (to be cancelled)" if request["cancel_requested"] and not fields["ended"] else ""
    details = "".join(f"\n  {name}: {value}" for name, value in fields.items() if value is not None)
    return f"{request['inference_id']} {request['state']}{cancelling}{details}"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)
