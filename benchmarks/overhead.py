"""What a gateway adds to a call: Sagehen's, with signatures, next to nginx's, in one run.

    python3 benchmarks/overhead.py [--seconds 5] [--repeats 5] [--save]

One connection, one request at a time, to the same container over the same Unix socket: directly,
through Sagehen's gateway, and through nginx with `least_conn` and connections kept open. What each
adds is its median time minus the direct call's.
"""

import argparse
import datetime
import getpass
import json
import os
import shutil
import socket
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from machine import describe_machine
from others import Others
from sides import HERE, Side, plain_request, process, sagehen, wait_for
from throughput import check, make_model, middle, put_under_load, row_of

WARM_UP_SHARE = 0.2
DIRECT = "The container, called directly"
NGINX = "nginx (not signed)"
MISSING = "nginx is missing, so it is not compared. To have it: apt-get install -y nginx-light"

Results = dict[str, list[dict[str, float]]]
"""Each measurement by side."""


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, ExitStack() as stack:
        model, rows, expected = make_model(Path(folder))
        gateway = stack.enter_context(sagehen(model, Path(folder)))
        container = container_socket(gateway)
        sides = [Side(DIRECT, container, 0, partial(plain_request, 80)), gateway]
        if shutil.which("nginx"):
            sides.append(stack.enter_context(nginx(container, Path(folder))))
        else:
            print(MISSING, file=sys.stderr)
        for side in sides:
            check(side, rows, expected)
        others = Others()
        results = measure(sides, rows, Path(folder), arguments, others)
    report = render(results, others)
    print(report)
    if arguments.save:
        saved = HERE / "results" / f"{datetime.date.today().isoformat()}-overhead.md"
        saved.write_text(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--at-once", action="store_true", help="whatever else the machine does: to try it out"
    )
    parser.add_argument("--save", action="store_true", help="keep the table in results/")
    return parser.parse_args()


def container_socket(gateway: Side) -> str:
    """Where the only instance of the only endpoint listens."""
    url = f"http://{gateway.host}:{gateway.port}/_sagehen/status"
    with urllib.request.urlopen(url, timeout=10) as answer:
        (endpoint,) = json.load(answer)["endpoints"]
    ((instance,),) = [variant["instances"] for variant in endpoint["variants"]]
    return str(instance["address"].removeprefix("unix:"))


@contextmanager
def nginx(container: str, folder: Path) -> Iterator[Side]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = folder / "nginx.conf"
    configuration.write_text(nginx_configuration(container, port, folder))
    command = ["nginx", "-c", str(configuration), "-p", str(folder), "-e", f"{folder}/nginx.log"]
    with process([*command, "-g", "daemon off;"]) as running:
        wait_for(lambda: listens(port), running)
        yield Side(NGINX, "127.0.0.1", port, partial(plain_request, port))


def nginx_configuration(container: str, port: int, folder: Path) -> str:
    # As root, nginx would drop to a user who may not open the container's socket.
    user = f"user {getpass.getuser()};" if os.getuid() == 0 else ""
    places = "".join(
        f"{kind}_temp_path {folder}/nginx-{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
    {user}
    worker_processes 1;
    pid {folder}/nginx.pid;
    error_log {folder}/nginx.log;
    events {{ worker_connections 1024; }}
    http {{
        access_log off;
        {places}
        upstream container {{ least_conn; server unix:{container}; keepalive 64; }}
        server {{
            listen 127.0.0.1:{port};
            keepalive_requests 1000000000;
            location / {{
                proxy_pass http://container;
                proxy_http_version 1.1;
                proxy_set_header Connection "";
            }}
        }}
    }}
    """


def listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def measure(
    sides: Sequence[Side],
    rows: Sequence[str],
    folder: Path,
    arguments: argparse.Namespace,
    others: Others,
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(arguments.repeats):
        for side in sides:
            put_under_load(side, rows, 1, WARM_UP_SHARE * arguments.seconds, folder)
            once = partial(put_under_load, side, rows, 1, arguments.seconds, folder)
            result = once() if arguments.at_once else others.undisturbed(once)
            results[side.name].append(result)
            print(
                f"{repeat + 1}/{arguments.repeats}  {side.name:38} "
                f"{result['p50_ms'] * 1000:8.0f} µs",
                file=sys.stderr,
            )
    return results


def render(results: Results, others: Others) -> str:
    """The medians as a Markdown table."""
    direct = middle(results[DIRECT], "p50_ms")
    lines = [f"# Overhead of the gateway, {datetime.date.today().isoformat()}", ""]
    lines += [*describe_machine(), others.describe(), ""]
    lines += [
        "One connection, one request at a time; microseconds.",
        "",
        "| side | p50 | p90 | p99 | added to p50 |",
        "|---|---|---|---|---|",
    ]
    for name, measured in results.items():
        p50, *slower = (middle(measured, key) for key in ("p50_ms", "p90_ms", "p99_ms"))
        added = "" if name == DIRECT else f"{(p50 - direct) * 1000:.0f}"
        lines.append(row_of([name, *(f"{ms * 1000:.0f}" for ms in (p50, *slower)), added]))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
