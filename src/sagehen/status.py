"""What `sagehen status` shows: asked of the running server, drawn as a table."""

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from sagehen.ask import ask
from sagehen.home import Home

__all__ = ["fetch_status", "render_status"]


def fetch_status(home: Home) -> dict[str, Any]:
    """The running server's `/_sagehen/status`.

    Raises:
        Unavailable: no server runs with this home, or it does not answer.
    """
    return ask(home, "status")


def render_status(status: dict[str, Any]) -> RenderableType:
    """The status as a table of endpoints, with queues and the reasons of failures below it."""
    endpoints = status["endpoints"]
    damage = [Text(status["state"])] if status.get("state", "ok") != "ok" else []
    if not endpoints:
        return Group(*damage, Text(f"{status['url']} serves; there are no endpoints yet."))
    below = (*_queues(endpoints), *_reasons(endpoints), *_instance_reasons(endpoints))
    return Group(*damage, Text(status["url"]), _table(endpoints), *below)


def _table(endpoints: list[dict[str, Any]]) -> Table:
    # Names fold and nothing else does, so that 80 columns are enough.
    table = Table(
        Column("Endpoint", overflow="fold"),
        Column("Status", no_wrap=True),
        Column("Variant", overflow="fold"),
        *(Column(name, no_wrap=True) for name in ("Ready", "Calls", "p50/p99 ms", "Models")),
        Column("Memory", no_wrap=True),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for endpoint in endpoints:
        is_queued = endpoint.get("queue") is not None
        for number, variant in enumerate(endpoint["variants"] or [{}]):
            first = (endpoint["name"], endpoint["status"]) if number == 0 else ("", "")
            table.add_row(*first, *_cells(variant, is_queued=is_queued))
    return table


def _queues(endpoints: list[dict[str, Any]]) -> list[Text]:
    return [
        Text(
            f"{endpoint['name']}: {queue['mode']}, {queue['queued']} queued, "
            f"{queue['in_process']} in process"
        )
        for endpoint in endpoints
        if (queue := endpoint.get("queue"))
    ]


def _reasons(endpoints: list[dict[str, Any]]) -> list[Text]:
    return [
        Text(f"{endpoint['name']}: {endpoint['failure_reason']}")
        for endpoint in endpoints
        if endpoint.get("failure_reason")
    ]


def _instance_reasons(endpoints: list[dict[str, Any]]) -> list[Text]:
    """A line for each instance that failed under an endpoint that is to serve."""
    return [
        Text(f"{endpoint['name']}, instance {instance['id']}: {instance['failure_reason']}")
        for endpoint in endpoints
        for variant in endpoint["variants"]
        for instance in variant["instances"]
        if instance["failure_reason"] and not endpoint["failure_reason"]
    ]


def _cells(variant: dict[str, Any], *, is_queued: bool) -> tuple[str, ...]:
    """Calls and times are those of gateways, which what is queued does not pass."""
    if not variant:
        return ("", "", "", "", "", "")
    memory = variant.get("memory_bytes")
    return (
        variant["name"] + (" (shadow)" if variant.get("shadow") else ""),
        f"{variant['in_service']}/{variant['desired']}",
        "" if is_queued else str(variant.get("invocations", 0)),
        _latency(variant.get("p50_latency_milliseconds"), variant.get("p99_latency_milliseconds")),
        str(variant["loaded_models"] or 0) if variant["multi_model"] else "",
        f"{memory / 2**20:.0f} MiB" if memory else "",
    )


def _latency(p50: float | None, p99: float | None) -> str:
    if p50 is None or p99 is None:
        return ""
    return "/".join(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in (p50, p99))
