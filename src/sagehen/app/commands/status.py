"""Renders `sagehen status`.

In a terminal names fold; elsewhere each row is one line, for searching.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.output import time_text
from sagehen.base.errors import NotFound
from sagehen.base.home import Home

__all__ = ["fetch_status", "plain_status", "render_status", "select_endpoint"]

_COLUMNS = (
    "Endpoint",
    "Status",
    "Variant",
    "Ready",
    "Calls",
    "Errors",
    "p50/p99 ms",
    "Models",
    "Memory",
)
_SENTENCE = re.compile(
    r"The .* did not pass the ping|CannotStartContainer|Failed to (extract|download)|Request to s"
    r"|CapacityError"
)
"""beginnings of SageMaker's sentences; see `agent/instances/failures.py`"""
_SINCE_START = "Calls, their errors and their times are counted since the server started."


def fetch_status(home: Home) -> dict[str, Any]:
    """Fetches `/_sagehen/status`; raises Unavailable if no server answers."""
    return call_control(home, "status")


def select_endpoint(status: dict[str, Any], name: str) -> dict[str, Any]:
    """Reduces the status to one endpoint; raises NotFound."""
    endpoints = [endpoint for endpoint in status["endpoints"] if endpoint["name"] == name]
    if not endpoints:
        raise NotFound(f"There is no endpoint {name}; `sagehen status` lists them all.")
    own = re.compile(rf"(Node \S+: )?{re.escape(name)}, ")  # a cluster's begin with the node
    return {
        "url": status["url"],
        "version": status.get("version"),
        "endpoints": endpoints,
        "problems": [line for line in status.get("problems", ()) if own.match(line)],
    }


def render_status(status: dict[str, Any], *, details: bool = False) -> RenderableType:
    """Renders a table; `details` adds each instance."""
    endpoints = status["endpoints"]
    below = [Text(line) for line in _lines_below(status, details)]
    damage = [Text(line) for line in _damage(status)]
    if not endpoints:
        nothing = Text(f"{status['url']} is running; there are no endpoints yet.")
        return Group(*damage, nothing, *below)
    return Group(*damage, Text(status["url"]), _table(endpoints), *below)


def _damage(status: dict[str, Any]) -> list[str]:
    return [status["state"]] if status.get("state", "ok") != "ok" else []


def plain_status(status: dict[str, Any], *, details: bool = False) -> str:
    endpoints = status["endpoints"]
    below = _lines_below(status, details)
    if not endpoints:
        nothing = f"{status['url']} is running; there are no endpoints yet."
        return "\n".join([*_damage(status), nothing, *below])
    rows = [_COLUMNS, *([cell or "-" for cell in row] for row in _rows(endpoints, repeat=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([*_damage(status), status["url"], *lines, *below])


def _table(endpoints: list[dict[str, Any]]) -> Table:
    # 80 columns suffice if names fold.
    folding = ("Endpoint", "Variant")
    table = Table(
        *(
            Column(name, overflow="fold") if name in folding else Column(name, no_wrap=True)
            for name in _COLUMNS
        ),
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for row in _rows(endpoints, repeat=False):
        table.add_row(*row)
    return table


def _rows(endpoints: list[dict[str, Any]], *, repeat: bool) -> Iterable[tuple[str, ...]]:
    """Yields a row per variant; with `repeat`, every row names its endpoint."""
    for endpoint in endpoints:
        is_queued = endpoint.get("queue") is not None
        for number, variant in enumerate(endpoint["variants"] or [{}]):
            is_named = repeat or number == 0
            first = (endpoint["name"], endpoint["status"]) if is_named else ("", "")
            yield (*first, *_cells(variant, is_queued=is_queued))


def _lines_below(status: dict[str, Any], details: bool) -> list[str]:
    endpoints = status["endpoints"]
    return [
        *(_instances(endpoints) if details else ()),
        *_queues(endpoints),
        *_scaling(endpoints),
        *_cold(endpoints),
        *_leaving(endpoints),
        *_libraries(endpoints),
        *_reasons(endpoints),
        *_instance_reasons(endpoints),
        *_errors(endpoints),
        *_jobs(status),
        *_gpus(status),
        *_walls(status),
        *status.get("problems", ()),
        *([_SINCE_START] if endpoints else []),
    ]


def _instances(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}, variant {variant['name']} ({variant['instance_type']}), "
        f"instance {instance['id']}: {instance['state']}"
        for endpoint in endpoints
        for variant in endpoint["variants"]
        for instance in variant["instances"]
    ]


def _scaling(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}, variant {variant['name']}: {scaled['count']} from "
        f"{scaled['minimum']} to {scaled['maximum']} by {_policies(scaled['policies'])}"
        + (f". {scaled['reason']}" if scaled["reason"] else "")
        for endpoint in endpoints
        for variant in endpoint["variants"]
        for scaled in variant.get("scaling", ())
    ]


def _cold(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}, variant {variant['name']}: no instance runs; the next request starts "
        "one"
        for endpoint in endpoints
        for variant in endpoint["variants"]
        if variant.get("starts_on_demand") and not variant["instances"]
    ]


def _leaving(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}: {count} leaving "
        f"{'instance ends its' if count == 1 else 'instances end their'} requests"
        for endpoint in endpoints
        if (count := endpoint.get("leaving", 0))
    ]


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"


def _jobs(status: dict[str, Any]) -> list[str]:
    jobs = status.get("training_jobs") or {}
    lines = []
    if any(jobs.values()):
        lines.append(f"Training jobs: {_counted(jobs)} (sagehen training list)")
    transforms = status.get("transform_jobs") or {}
    if any(transforms.values()):
        lines.append(f"Transform jobs: {_counted(transforms)} (sagehen transform list)")
    for service in status.get("inference_services", ()):
        lines.append(f"Inference service {service['stage']}: {_counted(service)}")
        if service.get("problem"):
            lines.append(service["problem"])
    return lines


def _gpus(status: dict[str, Any]) -> list[str]:
    listed = status.get("gpus") or {}
    problem = listed.get("problem")
    lines = [f"GPUs: {problem}."] if problem else []
    if gpus := listed.get("gpus", []):
        free = sum(gpu["free"] == 1 for gpu in gpus)
        lines.append(f"GPUs: {len(gpus)}, of which {free} free")
        lines += [f"GPU {gpu['id']} ({gpu['name']}): {_holders(gpu)}" for gpu in gpus]
    return lines


def _holders(gpu: dict[str, Any]) -> str:
    names = [
        f"training job {holder['training_job']}, {holder['host']}"
        if holder.get("training_job")
        else f"transform job {holder['transform_job']}, instance {holder['instance']}"
        if holder.get("transform_job")
        else f"endpoint {holder['endpoint']}, instance {holder['instance']}"
        for holder in gpu["holders"]
    ]
    if not names:
        return "free"
    shares = [holder["fraction"] for holder in gpu["holders"]]
    if gpu["free"] == 0 and len(names) == 1:
        return names[0]
    parts = [f"{name} ({share:g})" for name, share in zip(names, shares, strict=True)]
    return "; ".join([*parts, f"{gpu['free']:g} free"] if gpu["free"] else parts)


def _walls(status: dict[str, Any]) -> list[str]:
    return [f"Missing wall around containers: {wall}." for wall in status.get("missing_walls", ())]


def _counted(jobs: dict[str, Any]) -> str:
    return f"{jobs['running']} running, {jobs['waiting']} waiting"


def _queues(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}: {queue['mode']}, {queue['queued']} queued, "
        f"{queue['in_process']} in process"
        for endpoint in endpoints
        if (queue := endpoint.get("queue"))
    ]


def _libraries(endpoints: list[dict[str, Any]]) -> list[str]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for endpoint in endpoints:
        texts = (text for variant in endpoint["variants"] for text in variant.get("libraries", ()))
        for text in dict.fromkeys(texts):
            names[text].append(endpoint["name"])
    return [f"{', '.join(endpoint_names)}: {text}" for text, endpoint_names in names.items()]


def _reasons(endpoints: list[dict[str, Any]]) -> list[str]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.get("failure_reason"):
            names[_bare(endpoint["failure_reason"])].append(endpoint["name"])
    return [f"{', '.join(endpoint_names)}: {reason}" for reason, endpoint_names in names.items()]


def _instance_reasons(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}, instance {instance['id']}: {_bare(instance['failure_reason'])}"
        for endpoint in endpoints
        for variant in endpoint["variants"]
        for instance in variant["instances"]
        if instance["failure_reason"] and not endpoint["failure_reason"]
    ]


def _errors(endpoints: list[dict[str, Any]]) -> list[str]:
    return [
        f"{endpoint['name']}, variant {variant['name']}: the last error, {error['status']} at "
        f"{time_text(error['at'])}: {_one_line(error['message']) or 'without a message'} "
        f"(sagehen logs {endpoint['name']})"
        for endpoint in endpoints
        for variant in endpoint["variants"]
        if (error := variant.get("last_error"))
    ]


def _one_line(text: str) -> str:
    """Returns what a model said without what a terminal would act on."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _bare(reason: str) -> str:
    """Returns the cause that stands in brackets after SageMaker's sentence."""
    _, bracket, cause = reason.partition(" (")
    is_sagemakers = bracket and _SENTENCE.match(reason) and reason.endswith(")")
    return cause[:-1] if is_sagemakers else reason


def _cells(variant: dict[str, Any], *, is_queued: bool) -> tuple[str, ...]:
    """Queued requests bypass the gateways, which count calls."""
    if not variant:
        return ("",) * (len(_COLUMNS) - 2)
    memory = variant.get("memory_bytes")
    return (
        variant["name"] + (" (shadow)" if variant.get("shadow") else ""),
        f"{variant['in_service']}/{variant['desired']}",
        "" if is_queued else str(variant.get("invocations", 0)),
        "" if is_queued else str(variant.get("errors_4xx", 0) + variant.get("errors_5xx", 0)),
        _latency(variant.get("p50_latency_milliseconds"), variant.get("p99_latency_milliseconds")),
        str(variant["loaded_models"] or 0) if variant["multi_model"] else "",
        f"{memory / 2**20:.0f} MiB" if memory else "",
    )


def _latency(p50: float | None, p99: float | None) -> str:
    if p50 is None or p99 is None:
        return ""
    return "/".join(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in (p50, p99))
