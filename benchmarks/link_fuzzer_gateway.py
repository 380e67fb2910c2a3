"""The gateway of link_fuzzer.py: `link_fuzzer_gateway.py HOME CONTAINERS TIMEOUT_SECONDS`.

It prints its address, serves until SIGTERM, and prints how many requests are in flight then.
"""

import asyncio
import logging
import random
import signal
import socket
import sys
from pathlib import Path

import msgspec
import uvloop

from sagehen.base.clock import SYSTEM
from sagehen.base.home import prepare_home
from sagehen.frame.routes import InstanceRoute, Route, RouteTable, VariantRoute
from sagehen.gateway.assembly import make_gateway
from sagehen.gateway.invocation import invocation
from sagehen.gateway.routing.inflight import create_inflight_table, open_inflight_table
from support.fixtures.gateway import KEY, SECRET
from support.state import settings_of


async def main(folder: Path, containers: Path, timeout_seconds: float) -> None:
    invocation.MAX_END_REASON_POLLS = 0  # no agent would note why a container ended
    home = prepare_home(folder)
    routes = {name: _route(name, f"link:{containers / name}") for name in ("hostile", "honest")}
    home.routes.write_bytes(msgspec.json.encode(RouteTable(routes=routes)))
    create_inflight_table(home.inflight_table, 1)
    gateway = make_gateway(
        settings_of(home.path, invocation_timeout_seconds=timeout_seconds),
        home,
        {KEY: SECRET},
        SYSTEM,
        random.Random(7),
        open_inflight_table(home.inflight_table, 0),
        None,
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    async with gateway.running(listener):
        print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await ending.wait()
        outstanding = sum(one.outstanding for one in gateway._routes.instances())
        print(f"outstanding {outstanding}", flush=True)


def _route(name: str, address: str) -> Route:
    instance = InstanceRoute(instance_id=name, address=address, slots=8)
    variant = VariantRoute(name="AllTraffic", weight=1, instances=(instance,))
    return Route(endpoint_name=name, variants=(variant,), shadow=None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
