"""The `process` launcher: a container is a process of this machine, in its own session."""

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.container_log import ContainerLog
from sagehen.agent.instances.limits import (
    NO_LIMITS,
    InstanceLimit,
    LimitHits,
    Limits,
    describe_hit,
)
from sagehen.agent.instances.process_tree import (
    TreeMemory,
    end_trees,
    kernel_kills,
    tree_cpu_seconds,
    tree_listening_ports,
)
from sagehen.agent.launchers.cgroups import Cgroup, Cgroups
from sagehen.agent.launchers.fork_servers import ForkServers
from sagehen.agent.launchers.forked_start import fork_container
from sagehen.agent.launchers.handoff import open_handoff
from sagehen.agent.launchers.helper_process import HelperProcess
from sagehen.agent.launchers.launcher import LaunchPlan, NetworkPlan
from sagehen.agent.launchers.limit_watch import LimitWatch
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.own_network import handoff_listener
from sagehen.agent.launchers.spawn import MainProcess, kill_group, spawn, watch_end
from sagehen.agent.launchers.walls import NO_WALLS, OPT_ML, Wall, Walls, show_named, unseen_file
from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.user_environment import mps_folder

__all__ = ["ContainerProcess", "ProcessLauncher", "show_gpus"]

log = logging.getLogger(__name__)

LOG_SETTLE_SECONDS = 1.0


class ContainerProcess:
    """A container as a process group, with its own cgroup where possible.

    Raises OSError, and ends the process, if it cannot be watched.
    """

    def __init__(
        self,
        process: MainProcess,
        limits: Limits,
        log: ContainerLog,
        group: Cgroup | None,
        orphans: Orphans,
    ) -> None:
        self._process = process
        self._limits = limits
        self._log = log
        self._group = group
        self._orphans = orphans
        self._kernel_kills = kernel_kills()
        self._own_hits: Counter[InstanceLimit] = Counter()
        self._group_hits: LimitHits = {}
        self._killed = False
        self._ended_because: str | None = None
        self._end_logged = False
        self.network: NetworkPlan | None = None
        self.is_forked = False
        self._helpers = _watch_helpers(process, orphans)
        self._ended = watch_end(process, self._on_end)
        self._memory = TreeMemory(process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str | None:
        return None

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def ended_because(self) -> str | None:
        return self._ended_because

    async def wait(self) -> int:
        # Shielded: others wait too.
        status = await asyncio.shield(self._ended)
        await asyncio.to_thread(self._log.settle, LOG_SETTLE_SECONDS)
        if self._ended_because is not None and not self._end_logged:
            # Users look in the log, and the process had no time to write.
            self._end_logged = True
            await asyncio.to_thread(self._log.add, f"sagehen: {self._ended_because}.")
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        for helper in self._helpers:
            await helper.close()
        return status

    def terminate(self) -> None:
        # Only the main process, as `docker stop` does.
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        if not self.has_ended:
            self._killed = True
            if self._group is None and self._process.init_pid is None:
                # The group, then descendants outside it before they lose their parent.
                kill_group(self._process.pid, signal.SIGSTOP)
                end_trees([self._process.pid])
            self._kill_all()

    def end_for(self, limit: InstanceLimit, limits: Limits) -> None:
        if not self.has_ended and not self._killed:
            self._own_hits[limit] += 1
            self._ended_because = describe_hit(limit, limits)
            self.kill()

    def last_lines(self) -> list[str]:
        return self._log.last_lines()

    async def memory_bytes(self) -> int:
        if self.has_ended:
            return 0
        counted = self._group.memory_bytes() if self._group is not None else None
        if counted is not None:
            return counted
        return await asyncio.to_thread(self._memory.read)

    async def cpu_seconds(self) -> float:
        if self.has_ended:
            return 0.0
        return await asyncio.to_thread(tree_cpu_seconds, self._process.pid)

    async def listening_ports(self) -> list[int]:
        if self.has_ended:
            return []
        return await asyncio.to_thread(tree_listening_ports, self._process.pid)

    @contextlib.asynccontextmanager
    async def reach(self, port: int) -> AsyncIterator[str]:
        if self.network is None or self.network.handoff is None:
            yield f"tcp:127.0.0.1:{port}"
            return
        path = self.network.handoff.with_suffix(f".{port}")
        handoff = await open_handoff(self.pid, path, self._orphans, port=port)
        try:
            yield handoff.address
        finally:
            await handoff.close()

    def note(self, message: str) -> None:
        self._log.add(f"sagehen: {message}")

    def hits(self) -> LimitHits:
        if self._group is not None and not self.has_ended:
            self._group_hits = self._group.hits()
        rotations = {InstanceLimit.LOG: self._log.rotations}
        return dict(self._own_hits + Counter(self._group_hits) + Counter(rotations))

    def _kill_all(self) -> None:
        for helper in self._helpers:
            helper.end()
        self._process.kill_all()
        if self._group is not None:
            self._group.kill()

    def _on_end(self) -> None:
        # Before the wait, after which the PID may be another's.
        self._kill_all()
        self.hits()
        if self._process.wait() == -signal.SIGKILL and not self._killed:
            self._ended_because = self._explain_kill()
        self._orphans.end()

    def _explain_kill(self) -> str | None:
        if self._group_hits.get(InstanceLimit.MEMORY):
            return describe_hit(InstanceLimit.MEMORY, self._limits)
        if kernel_kills() > self._kernel_kills:
            return "the machine had no memory left, so that the kernel ended processes"
        return None


class ProcessLauncher:
    """Starts containers as children that cannot outlive the agent.

    Args:
        orphans: told to adopt if this process's children are all containers.
        walls: those that hold here; see `find_walls`.
        files_shared_because: why this machine, and not the user, leaves containers without files
            of their own.
        umask: negative keeps this process's own.
        fork_servers: start containers quicker, where they can.
    """

    def __init__(
        self,
        cgroups: Cgroups | None = None,
        orphans: Orphans | None = None,
        clock: Clock = SYSTEM,
        *,
        walls: Walls = NO_WALLS,
        files_shared_because: str | None = None,
        umask: int = -1,
        fork_servers: ForkServers | None = None,
    ) -> None:
        self._umask = umask
        self._fork_servers = fork_servers
        self._cgroups = cgroups
        self._walls = walls
        self._files_shared_because = files_shared_because
        self._commands: dict[tuple[str, ...], ContainerProcess] = {}
        self._orphans = orphans or Orphans()
        self._watch = LimitWatch(clock)

    def container_base(self, base: Path) -> Path:
        return OPT_ML if Wall.FILES in self._walls else base

    async def start(self, plan: LaunchPlan) -> ContainerProcess:
        plan = show_gpus(plan)
        if Wall.FILES in self._walls:
            plan = show_named(plan)
        self._check_command(plan)
        output, output_end = os.pipe2(os.O_CLOEXEC)
        try:
            # First, as this may fail; the log ends by itself if nothing is started.
            log = _open_log(plan, output)
            return await self._start(plan, output_end, log)
        except (OSError, ValueError) as error:
            raise CannotStart(f"{plan.command[0]}: {_error_text(error)}") from error
        finally:
            os.close(output_end)

    def _check_command(self, plan: LaunchPlan) -> None:
        """Raises CannotStart for what would fail unexplained, or answer with another's model."""
        if Wall.FILES in self._walls and (file := unseen_file(plan)) is not None:
            raise CannotStart(
                f"{file} is in a folder that each container has of its own; name its folder in the "
                "setting shared_folders, or move it elsewhere"
            )
        other = self._commands.get(plan.command)
        if plan.is_command and self._files_shared_because and other and not other.has_ended:
            raise CannotStart(
                "another container runs the same command, and here both would use the same files "
                "in /tmp and /run, as containers have no files of their own "
                f"({self._files_shared_because}). Run the server as root, or allow unprivileged "
                "user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone"
                " or kernel.apparmor_restrict_unprivileged_userns); or, if the command uses no "
                "fixed paths, set mount_opt_ml to false"
            )

    async def _start(self, plan: LaunchPlan, output: int, log: ContainerLog) -> ContainerProcess:
        group = None
        with contextlib.ExitStack() as on_failure, handoff_listener(plan.network) as handoff:
            if self._cgroups is not None:
                group = self._cgroups.make(plan.instance_id, plan.name, plan.limits)
                on_failure.callback(group.remove)
            procs = group.procs if group else None
            forked = await self._fork(plan, output, procs)
            process = forked or await spawn(
                plan,
                output,
                procs,
                self._orphans,
                walls=self._walls,
                umask=self._umask,
                handoff=handoff,
            )
            container = ContainerProcess(process, plan.limits, log, group, self._orphans)
            on_failure.callback(container.kill)
            container.network = plan.network
            container.is_forked = forked is not None
            on_failure.pop_all()
        if plan.is_command:
            self._commands[plan.command] = container
        unenforced = _unenforced_limits(plan.limits, group)
        if unenforced != NO_LIMITS:
            self._watch.add(plan.instance_id, container, unenforced)
        return container

    async def _fork(self, plan: LaunchPlan, output: int, procs: Path | None) -> MainProcess | None:
        """Returns None if the container must be started in the ordinary way."""
        server = self._fork_servers.find(plan) if self._fork_servers is not None else None
        if server is None:
            return None
        try:
            return await fork_container(
                server, plan, output, procs, self._orphans, walls=self._walls, umask=self._umask
            )
        except (OSError, ValueError) as error:
            about = {"container": plan.name, "instance": plan.instance_id}
            log.warning("A fork server could not start a container: %s", error, extra=about)
            if self._fork_servers is not None:
                self._fork_servers.replace(server)
            return None


def _watch_helpers(process: MainProcess, orphans: Orphans) -> list[HelperProcess]:
    """Raises OSError, and ends the container, if one cannot be watched."""
    try:
        return [
            HelperProcess(pid, f"{name} of a container", orphans)
            for pid, name in process.helpers.items()
        ]
    except OSError:
        process.give_up()
        raise


def _open_log(plan: LaunchPlan, output: int) -> ContainerLog:
    """Opens the log. Raises OSError, or RuntimeError without a free thread."""
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(os.close, output)
        log = ContainerLog(plan.log, plan.log_bytes, listener=plan.listener)
        log.follow(output)
        on_failure.pop_all()
    return log


def _unenforced_limits(limits: Limits, group: Cgroup | None) -> Limits:
    """The limits that only polling can enforce."""
    enforced = group.enforced if group is not None else frozenset()
    return Limits(
        memory_bytes=None if InstanceLimit.MEMORY in enforced else limits.memory_bytes,
        processes=None if InstanceLimit.PROCESSES in enforced else limits.processes,
    )


def _error_text(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"


def show_gpus(plan: LaunchPlan) -> LaunchPlan:
    """Returns the plan with its GPUs in CUDA's variables.

    The user's own CUDA_VISIBLE_DEVICES counts among the plan's GPUs, as inside a container.
    """
    if plan.gpus != ():
        plan = _show_mps(plan, mps_folder())
    if plan.gpus is None:
        return plan
    visible = _chosen_gpus(plan.gpus, plan.environment.get(CUDA_DEVICES))
    variables = {
        CUDA_DEVICES: ",".join(visible),
        # nvidia-smi's; CUDA counts the fastest first otherwise.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return replace(plan, environment=plan.environment | variables)


def _show_mps(plan: LaunchPlan, folder: Path | None) -> LaunchPlan:
    """Lets the container reach the user's MPS daemon; else CUDA silently does without MPS."""
    if folder is None or MPS_FOLDER in plan.environment:
        return plan
    view = replace(plan.view, shown=(*plan.view.shown, folder))
    return replace(plan, view=view, environment=plan.environment | {MPS_FOLDER: str(folder)})


def _chosen_gpus(gpus: Sequence[str], choice: str | None) -> list[str]:
    """Ends at the first unknown GPU, as CUDA does."""
    if choice is None:
        return list(gpus)
    chosen: list[str] = []
    for name in (part.strip() for part in choice.split(",")):
        if name.isdecimal() and int(name) < len(gpus):
            chosen.append(gpus[int(name)])
        elif name in gpus:
            chosen.append(name)
        else:
            break
    return chosen
