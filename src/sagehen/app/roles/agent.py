"""The agent's process, which runs instances, behind a Unix socket."""

from sagehen.agent.agent import Agent
from sagehen.agent.app import create_app
from sagehen.agent.launchers.cgroups import open_cgroups
from sagehen.agent.launchers.choice import LauncherChoice
from sagehen.agent.launchers.docker.launcher import DockerLauncher, uses_docker
from sagehen.agent.launchers.mounts import can_mount
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.app.roles.common import Start, run, serve_on, start_role
from sagehen.base.clock import SYSTEM
from sagehen.services.s3.storage.opening import LateObjectStore

__all__: list[str] = []


async def _main(start: Start) -> None:
    objects = LateObjectStore(start.settings, start.home, SYSTEM)
    cgroups = open_cgroups(start.home.path) if start.settings.cgroups else None
    orphans = Orphans()
    orphans.adopt()
    mounts = start.settings.mount_opt_ml and await can_mount(start.home.path, orphans)
    processes = ProcessLauncher(cgroups, orphans, mounts=mounts, umask=start.umask)
    images = DockerLauncher(start.settings, start.home, orphans)
    if uses_docker(start.settings) or start.home.docker_id.exists():
        await images.clear()
    agent = Agent(
        start.settings,
        start.home,
        objects.as_store(),
        SYSTEM,
        launcher=LauncherChoice(processes, images),
        problems=images.problems if uses_docker(start.settings) else None,
    )
    await agent.start()
    try:
        await serve_on(start.home.agent_socket, create_app(agent))
    finally:
        await agent.stop()
        await images.close()
        objects.close()
        if cgroups is not None:
            cgroups.close()


if __name__ == "__main__":
    run(_main(start_role("agent")))
