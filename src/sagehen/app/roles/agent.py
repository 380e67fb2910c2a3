"""The agent's process, which runs instances, behind a Unix socket, and behind TLS for the controls
of a cluster."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from sagehen.agent.agent import Agent
from sagehen.agent.app import create_app
from sagehen.agent.gpus.driver import NvidiaSmi
from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.launchers.cgroups import open_cgroups
from sagehen.agent.launchers.choice import LauncherChoice
from sagehen.agent.launchers.docker.launcher import DockerLauncher, uses_docker
from sagehen.agent.launchers.fork_servers import ForkServers
from sagehen.agent.launchers.network_probe import describe_networks, find_network_support
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.launchers.wall_probe import describe_missing, find_walls
from sagehen.agent.launchers.walls import Wall, unwanted_walls
from sagehen.app.roles.common import Start, run, serve_on, start_role
from sagehen.base.clock import SYSTEM
from sagehen.base.user_environment import cuda_devices
from sagehen.services.s3.storage.opening import LateObjectStore

if TYPE_CHECKING:
    from sagehen.app.roles.cluster_agent import ClusterMember

__all__: list[str] = []


def _make_fork_servers(start: Start, orphans: Orphans) -> ForkServers | None:
    most, late = start.settings.fork_servers, start.settings.script_variables
    return ForkServers(most, orphans, late, umask=start.umask) if most else None


def _make_member(start: Start) -> "ClusterMember | None":
    if not start.sockets:
        return None
    # Not imported on a machine of its own.
    from sagehen.app.roles.cluster_agent import ClusterMember

    return ClusterMember(start)


async def _main(start: Start) -> None:
    objects = LateObjectStore(start.settings, start.home, SYSTEM)
    cgroups = open_cgroups(start.home.path) if start.settings.cgroups else None
    orphans = Orphans()
    orphans.adopt()
    unwanted = unwanted_walls(start.settings)
    missing = await find_walls(frozenset(Wall) - unwanted.keys(), start.home.path, orphans)
    fork_servers = _make_fork_servers(start, orphans)
    processes = ProcessLauncher(
        cgroups,
        orphans,
        walls=frozenset(Wall) - unwanted.keys() - missing.keys(),
        files_shared_because=missing.get(Wall.FILES),
        umask=start.umask,
        fork_servers=fork_servers,
    )
    networks = await find_network_support(start.home.path, orphans)
    images = DockerLauncher(start.settings, start.home, orphans)
    if uses_docker(start.settings) or start.home.docker_id.exists():
        await images.clear()
    member = _make_member(start)
    agent = Agent(
        start.settings,
        start.home,
        objects.as_store(),
        SYSTEM,
        networks=networks,
        fork_servers=fork_servers,
        launcher=LauncherChoice(processes, images),
        problems=images.problems if uses_docker(start.settings) else None,
        gpus=GpuPool(start.settings, SYSTEM, NvidiaSmi(orphans), cuda_devices()),
        check_lease=member.lease.require_jobs_allowed if member else lambda: None,
        neighbours=member.fetcher if member else None,
    )
    if member is not None:
        member.attach(agent)
    await agent.start()
    missing_walls = [*describe_missing(unwanted | missing), *describe_networks(networks)]
    app = create_app(agent, missing_walls, member.own_routes if member else ())
    try:
        async with member.serving(agent, app) if member else nullcontext():
            await serve_on(start.home.agent_socket, app)
    finally:
        await agent.stop()
        await images.close()
        objects.close()
        if cgroups is not None:
            cgroups.close()


if __name__ == "__main__":
    run(_main(start_role("agent")))
