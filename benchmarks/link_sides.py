"""The server of link_against_http.py: `link_sides.py FOLDER`, where FOLDER has `rows` and `bytes`.

A gateway, and two model servers: one for the XGBoost model in `rows/model`, one for the script in
`bytes/model`. Each is routed twice, as the endpoint `…-link` and as `…-http`, which reach the same
process over a link and over HTTP/1.1. Prints the gateway's address; serves until SIGTERM.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import uvloop

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.base.home import prepare_home
from sagehen.base.settings import Settings
from sagehen.frame.routes import InstanceRoute, Route, RouteTable, VariantRoute
from sagehen.gateway.assembly import make_gateway
from sagehen.gateway.routing.inflight import create_inflight_table, open_inflight_table
from sagehen.http1.call import call_once

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "secret"
ADAPTERS = {"rows": "xgboost", "bytes": "python"}
WORKERS = "2"
START_TIMEOUT_SECONDS = 60


async def main(folder: Path) -> None:
    home = prepare_home(folder / "home")
    home.routes.write_bytes(msgspec.json.encode(RouteTable(routes=dict(routes(folder)))))
    create_inflight_table(home.inflight_table, 1)
    gateway = make_gateway(
        Settings(access_log=False),
        home,
        {ACCESS_KEY: SECRET_KEY},
        SYSTEM,
        random.Random(7),
        open_inflight_table(home.inflight_table, 0),
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    with ExitStack() as stack:
        for name in ADAPTERS:
            stack.enter_context(ModelServer(folder, name))
            await is_loaded(folder, name)
        async with gateway.running(listener):
            print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            await ending.wait()


def routes(folder: Path) -> list[tuple[str, Route]]:
    found = []
    for name in ADAPTERS:
        for kind, scheme in (("link", "link"), ("http", "unix")):
            endpoint = f"{name}-{kind}"
            address = f"{scheme}:{folder / name / 'http.sock'}"
            instance = InstanceRoute(instance_id=endpoint, address=address)
            variant = VariantRoute(name="AllTraffic", weight=1, instances=(instance,))
            found.append((endpoint, Route(endpoint_name=endpoint, variants=(variant,))))
    return found


class ModelServer:
    """Runs one while the block runs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._environment = os.environ | {
            "SAGEMAKER_BASE_DIR": str(folder / name),
            "SAGEHEN_ADAPTER": ADAPTERS[name],
            "SAGEHEN_BIND": f"unix:{folder / name / 'http.sock'}",
            "SAGEMAKER_MODEL_SERVER_WORKERS": WORKERS,
        }

    def __enter__(self) -> None:
        words = [sys.executable, "-m", "sagehen.containers.modelserver"]
        self._process = subprocess.Popen(words, env=self._environment)

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()


async def is_loaded(folder: Path, name: str) -> None:
    address = f"unix:{folder / name / 'http.sock'}"
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while True:
            try:
                answer = await call_once(address, "GET", "/ping", timeout_seconds=2)
                if answer.status == 200:
                    return
            except Unavailable:
                pass
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1])))
