"""Control's process: the API of every service but the runtime's synchronous calls, the reconcile
loop, and the dispatcher of asynchronous requests."""

import asyncio
import signal
import socket
from collections.abc import Callable

from sagehen.agent.client import AgentClient
from sagehen.api.app import Application
from sagehen.api.async_intake import Intake
from sagehen.api.async_invocations import AsyncInvocations
from sagehen.api.async_paths import AsyncPaths
from sagehen.api.async_queues import AsyncQueues
from sagehen.api.call import Call
from sagehen.api.observations import Observations
from sagehen.api.operations import OPERATIONS
from sagehen.api.own_paths import OwnPaths
from sagehen.api.sns.certificate import certificate_route
from sagehen.clock import SYSTEM
from sagehen.config import Settings
from sagehen.credentials import load_credentials
from sagehen.deferred.dispatch.assembly import make_dispatcher
from sagehen.deferred.dispatch.sweeps import Sweeps
from sagehen.domain.names import ArnMaker
from sagehen.metering.recorder import Recorder
from sagehen.metering.sampler import Sampler
from sagehen.objects import ObjectStore, open_object_store
from sagehen.reconcile.loop import EndpointLoop
from sagehen.roles.common import Start, run, serve_on, start_role
from sagehen.roles.notices import Notices
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.wire.sigv4 import Verifier

__all__: list[str] = []


async def _main(start: Start) -> None:
    database = Database(start.settings.state_url)
    writes = GroupedWrites(database)
    objects = open_object_store(start.settings, start.home, database, SYSTEM, writes)
    agent = AgentClient(start.home.agent_socket)
    # Named by its home, not its process: after a restart it takes its own lease over at once.
    holder = f"{socket.gethostname()}:{start.home.path}"
    recorder = Recorder(SYSTEM, database, start.settings.max_metric_series)
    dispatcher = make_dispatcher(
        start.settings, start.home, database, writes, objects, recorder.record, SYSTEM, holder
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
    notices = Notices(start, database, writes, recorder.record, holder)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, notices.arrivals.close)
    queues = AsyncPaths(AsyncQueues(database, SYSTEM, lambda _: dispatcher.hint()))
    more_paths = [*queues.routes, certificate_route(notices.signer)]
    observations = Observations(SYSTEM)
    sampler = Sampler(start.settings, database, recorder, observations, agent, SYSTEM, holder)
    app = Application(
        OPERATIONS,
        verifier,
        _call_maker(start.settings, database, writes, objects, notices, loop.hint),
        OwnPaths(observations, database, agent, sampler.measured, more_paths).app,
        AsyncInvocations(verifier, intake, SYSTEM),
    )
    duties = [
        asyncio.create_task(loop.run()),
        asyncio.create_task(dispatcher.run()),
        asyncio.create_task(sampler.run()),
        *(asyncio.create_task(duty) for duty in notices.duties()),
        asyncio.create_task(Sweeps(writes, SYSTEM, start.settings.async_history_seconds).run()),
        asyncio.create_task(asyncio.to_thread(objects.sweep)),
    ]
    try:
        await serve_on(start.home.control_socket, app)
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        await notices.close()
        writes.close()
        database.close()


def _call_maker(
    settings: Settings,
    database: Database,
    writes: GroupedWrites,
    objects: ObjectStore,
    notices: Notices,
    hint: Callable[[], None],
) -> Callable[[str], Call]:
    arns = ArnMaker(settings.account_id, settings.region)

    def make(request_id: str) -> Call:
        return Call(
            settings=settings,
            database=database,
            writes=writes,
            objects=objects,
            clock=SYSTEM,
            arns=arns,
            request_id=request_id,
            hint=hint,
            seal=notices.seal,
            arrivals=notices.arrivals,
        )

    return make


if __name__ == "__main__":
    run(_main(start_role("control")))
