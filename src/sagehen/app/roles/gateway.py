"""A gateway's process, which serves the public port."""

import random

from sagehen.app.roles.common import Start, run, start_role
from sagehen.base.clock import SYSTEM
from sagehen.base.credentials import load_credentials
from sagehen.gateway.assembly import make_gateway
from sagehen.gateway.routing.inflight import open_inflight_table

__all__: list[str] = []


async def _main(start: Start) -> None:
    keys = load_credentials(start.home.credentials)
    secrets = {keys.access_key: keys.secret_key}
    inflight = open_inflight_table(start.home.inflight_table, start.number)
    gateway = make_gateway(start.settings, start.home, secrets, SYSTEM, random.Random(), inflight)
    await gateway.serve(*start.sockets)


if __name__ == "__main__":
    run(_main(start_role("gateway")))
