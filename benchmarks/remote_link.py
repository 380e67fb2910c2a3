"""The cost of a request to an instance of another node, next to one of the same node.

    .venv/bin/python benchmarks/remote_link.py [--seconds 0.2] [--blocks 5] [--save]

Two nodes on one machine, with a gateway and a model server of the same XGBoost model each; all
requests come to the first gateway. The network is the loopback: what is measured is our own work,
and that of TLS. All sides take short turns (short_turns.py). Processor time is that of both
gateways and both containers.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from frame import heading, keep, options
from house import check, make_model
from link_sides import ACCESS_KEY, SECRET_KEY
from machine import describe_machine
from other_load import OtherLoad
from short_turns import compare, describe
from sides import HERE, Server, Side

CONNECTIONS = (1, 8, 64)


def main() -> None:
    parser = options(__doc__, seconds=0.2)
    parser.add_argument("--blocks", type=int, default=5)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as name:
        folder = Path(name)
        model, rows, expected = make_model(folder)
        for kind in ("tls", "plain"):
            (folder / kind / "model").mkdir(parents=True)
            shutil.copy(model, folder / kind / "model" / "xgboost-model")
            (folder / kind / "adapter").write_text("xgboost")
        measure = partial(
            compare, seconds=arguments.seconds, blocks=arguments.blocks, other_load=other_load
        )
        lines = [*heading("Requests to another node"), *describe_machine()]
        with (
            nodes(folder / "tls", 2, 1) as (over_tls, *_),
            nodes(folder / "plain", 2, 1, "--plain") as (plain, *_),
        ):
            local = side("same node", over_tls, "n0"), over_tls
            remote = side("other node", over_tls, "n1"), over_tls
            unencrypted = side("other node without TLS", plain, "n1"), plain
            for each, _ in (local, remote, unencrypted):
                check(each, rows, expected)
            for title, pair in (
                ("Another node beside the same one", (local, remote)),
                ("With TLS beside without", (unencrypted, remote)),
            ):
                results = measure(pair, rows[0], connections=CONNECTIONS)
                lines += ["", f"## {title}", "", *describe(results)]
        lines.insert(len(heading("")) + 3, other_load.describe())
    report = "\n".join([*lines, ""])
    print(report)
    if arguments.save:
        keep(report, "remote-link")


def side(name: str, running: Server, endpoint: str) -> Side:
    return Side(name, *running.address, partial(running.signed_request, endpoint))


@contextmanager
def nodes(folder: Path, count: int, servers: int, *more: str) -> Iterator[list[Server]]:
    """Yields a server for each gateway; the process is that of the whole cluster."""
    words = [sys.executable, str(HERE / "remote_sides.py"), str(folder), str(count), str(servers)]
    with subprocess.Popen([*words, *more], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            urls = process.stdout.readline().split()
            if not urls:
                raise SystemExit("The nodes did not start.")
            keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
            yield [Server(url, keys, folder / "h0", process.pid) for url in urls]
        finally:
            process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
