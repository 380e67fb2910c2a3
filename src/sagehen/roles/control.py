"""Control's process: the API of every service but the runtime's synchronous calls, the reconcile
loop, and the dispatcher of asynchronous requests."""

import asyncio
import socket
from collections.abc import Callable, Mapping

from sagehen.agent.client import AgentClient
from sagehen.api.app import Application
from sagehen.api.async_intake import Intake
from sagehen.api.async_invocations import AsyncInvocations
from sagehen.api.call import Call
from sagehen.api.observations import Observations
from sagehen.api.operations import OPERATIONS
from sagehen.api.own_paths import OwnPaths
from sagehen.clock import SYSTEM
from sagehen.config import Settings
from sagehen.credentials import load_credentials
from sagehen.deferred.assembly import make_dispatcher
from sagehen.deferred.sweeps import Sweeps
from sagehen.domain.names import ArnMaker
from sagehen.objects import ObjectStore, open_object_store
from sagehen.reconcile.loop import EndpointLoop
from sagehen.roles.common import Start, run, serve_on, start_role
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.wire.sigv4 import Verifier

__all__: list[str] = []


def _record(name: str, dimensions: Mapping[str, str], value: float) -> None:
    """TODO-LEAD: the collector of samples."""


async def _main(start: Start) -> None:
    database = Database(start.settings.state_url)
    objects = open_object_store(start.settings, start.home, database, SYSTEM)
    agent = AgentClient(start.home.agent_socket)
    # Named by its home, not its process: after a restart it takes its own lease over at once.
    holder = f"{socket.gethostname()}:{start.home.path}"
    writes = GroupedWrites(database)
    dispatcher = make_dispatcher(
        start.settings, start.home, database, writes, objects, _record, SYSTEM, holder
    )
    loop = EndpointLoop(
        database,
        agent,
        start.home,
        SYSTEM,
        holder,
        busy=lambda: dispatcher.busy,
        on_routes=dispatcher.hint,
    )
    dispatcher.on_idle = loop.hint
    keys = load_credentials(start.home.credentials)
    verifier = Verifier({keys.access_key: keys.secret_key}, SYSTEM, start.settings.region)
    intake = Intake(writes, start.settings.account_id, lambda _: dispatcher.hint())
    app = Application(
        OPERATIONS,
        verifier,
        _call_maker(start.settings, database, objects, loop.hint),
        OwnPaths(Observations(SYSTEM), database, agent).app,
        AsyncInvocations(verifier, intake, SYSTEM),
    )
    duties = [
        asyncio.create_task(loop.run()),
        asyncio.create_task(dispatcher.run()),
        asyncio.create_task(Sweeps(writes, SYSTEM, start.settings.async_history_seconds).run()),
        asyncio.create_task(asyncio.to_thread(objects.sweep)),
    ]
    try:
        await serve_on(start.home.control_socket, app)
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        writes.close()
        database.close()


def _call_maker(
    settings: Settings, database: Database, objects: ObjectStore, hint: Callable[[], None]
) -> Callable[[str], Call]:
    arns = ArnMaker(settings.account_id, settings.region)

    def make(request_id: str) -> Call:
        return Call(
            settings=settings,
            database=database,
            objects=objects,
            clock=SYSTEM,
            arns=arns,
            request_id=request_id,
            hint=hint,
        )

    return make


if __name__ == "__main__":
    run(_main(start_role("control")))
