"""The time that a gateway adds to a call: Sagehen's, with signatures, next to nginx's, in one run.

    python3 benchmarks/overhead.py [--seconds 5] [--repeats 5] [--save]

One connection, one request at a time, to the same container over the same Unix socket: directly,
through Sagehen's gateway, and through nginx with `least_conn` and connections kept open. What each
adds is its median time minus the direct call's.
"""

import getpass
import os
import shutil
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from frame import Measured, heading, keep, measure, middle, options, row_of
from house import check, make_model
from machine import describe_machine
from other_load import OtherLoad
from sides import Side, container_of, free_port, plain_request, process, sagehen, wait_for

NGINX = "nginx (not signed)"
MISSING = "nginx is missing, so it is not compared. To have it: apt-get install -y nginx-light"

Results = dict[str, list[Measured]]
"""Each measurement by side; the container's own are the first."""


def main() -> None:
    parser = options(__doc__, seconds=5)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, ExitStack() as stack:
        model, rows, expected = make_model(Path(folder))
        gateway = stack.enter_context(sagehen(model, Path(folder)))
        container = container_of(gateway)
        sides = [container, gateway]
        if shutil.which("nginx"):
            sides.append(stack.enter_context(nginx(container.host, Path(folder))))
        else:
            print(MISSING, file=sys.stderr)
        for side in sides:
            check(side, rows, expected)
        results = measure_all(sides, rows, arguments.seconds, arguments.repeats, other_load)
    report = render(results, other_load)
    print(report)
    if arguments.save:
        keep(report, "overhead")


@contextmanager
def nginx(container: str, folder: Path) -> Iterator[Side]:
    port = free_port()
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


def measure_all(
    sides: Sequence[Side], rows: Sequence[str], seconds: float, repeats: int, other_load: OtherLoad
) -> Results:
    results: Results = defaultdict(list)
    for repeat in range(repeats):
        for side in sides:
            result = measure(side, rows, 1, seconds, other_load)
            results[side.name].append(result)
            print(
                f"{repeat + 1}/{repeats}  {side.name:38} {result['p50_ms'] * 1000:8.0f} µs",
                file=sys.stderr,
            )
    return results


def render(results: Results, other_load: OtherLoad) -> str:
    """The medians as a Markdown table."""
    container = next(iter(results))
    direct = middle(results[container], "p50_ms")
    lines = [*heading("Overhead of the gateway"), *describe_machine(), other_load.describe(), ""]
    lines += [
        "One connection, one request at a time; microseconds.",
        "",
        "| side | p50 | p90 | p99 | added to p50 |",
        "|---|---|---|---|---|",
    ]
    for name, measured in results.items():
        p50, *slower = (middle(measured, key) for key in ("p50_ms", "p90_ms", "p99_ms"))
        added = "" if name == container else f"{(p50 - direct) * 1000:.0f}"
        lines.append(row_of([name, *(f"{ms * 1000:.0f}" for ms in (p50, *slower)), added]))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
