"""The GPUs of this node: who holds which share of them, in memory only.

A share is held from the start of an instance or job attempt until its containers have ended. A
restarted agent has no containers, so that all GPUs are free.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from sagehen.agent.gpus.driver import DriverError, Gpu, GpuUsage, NvidiaSmi
from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.clock import Clock
from sagehen.base.concurrency import first_of
from sagehen.base.errors import SagehenError
from sagehen.frame.gpu_allocation import Allocation, Demand, allocate, gpus_per_host
from sagehen.frame.gpus import WHOLE, GpuHolder, GpuList, GpuReport
from sagehen.frame.instance_types import find_instance_type

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["GpuPool", "GpuShare", "NoCapacity"]

log = logging.getLogger(__name__)

LIST_AGAIN_SECONDS = 30.0
"""between attempts while the driver lists no GPU"""
JOBS_AFTER_SECONDS = 5.0
"""after the start: endpoints that had GPUs before the agent died get theirs back first"""
USAGE_SECONDS = 8.0
"""between readings; control asks every 10 s"""
USAGE_VALID_SECONDS = 60.0


class NoCapacity(SagehenError):
    """Too few GPUs are free, or the node has too few; the message says which."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Request:
    instance_type: str
    demand: Demand
    holders: Sequence[GpuHolder]


class GpuShare:
    """The GPUs of an instance, or of a job's hosts, until `release`."""

    def __init__(
        self,
        pool: "GpuPool | None",
        hosts: Sequence[tuple[str, ...] | None],
        holders: Sequence[GpuHolder] = (),
        fraction: Fraction = WHOLE,
    ) -> None:
        self._pool = pool
        self.hosts = hosts
        """ids of each host's GPUs; None: the host sees whatever the machine has"""
        self.holders = holders
        self.fraction = fraction
        self.leaving = False

    def leave(self) -> None:
        """Says that the GPUs will be released soon, so that others wait for them."""
        self.leaving = True
        if self._pool is not None:
            self._pool.wake()

    def release(self) -> None:
        """Must be called when the containers have ended; later calls do nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self)

    def utilization(self, host: int = 0) -> dict[str, float]:
        """Returns SageMaker's GPU metrics of one host, added up over its GPUs."""
        gpus = self.hosts[host]
        return {} if self._pool is None or not gpus else self._pool.utilization(gpus)


class GpuPool:
    """Hands out the GPUs that nvidia-smi lists, as the setting `gpus` says.

    Args:
        visible: the server's own CUDA_VISIBLE_DEVICES; None if it is not set.
    """

    def __init__(
        self,
        settings: "Settings",
        clock: Clock,
        driver: NvidiaSmi | None = None,
        visible: Sequence[str] | None = None,
    ) -> None:
        self._mode = settings.gpus
        self._chosen = (settings.gpu_devices or None, visible)
        self._jobs_from = 0.0
        self._clock = clock
        self._driver = driver or NvidiaSmi(Orphans())
        self._gpus: dict[str, Gpu] = {}
        self._shares: list[GpuShare] = []
        self._patient: list[_Request] = []
        """jobs that wait, in order: a large one must not starve"""
        self._changed = asyncio.Event()
        self._problem: str | None = None
        self._listing: asyncio.Task[None] | None = None
        self._list_again_at = 0.0
        self._usage: dict[str, GpuUsage] = {}
        self._usage_at = self._usage_valid_until = 0.0
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to list the GPUs: without persistence mode, the driver takes seconds."""
        self._jobs_from = self._clock.monotonic() + JOBS_AFTER_SECONDS
        if self._mode != "unmanaged":
            self._list_soon()

    async def close(self) -> None:
        tasks = [task for task in (self._listing, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def reserve(
        self,
        instance_type: str,
        holders: Sequence[GpuHolder],
        fraction: Fraction = WHOLE,
        *,
        wait_seconds: float,
        patient: bool = False,
        on_wait: Callable[[], None] = lambda: None,
    ) -> GpuShare:
        """Waits for GPUs that are being released, and up to `wait_seconds` for others.

        Args:
            holders: one for each host.
            patient: waits in order behind other patient requests.
            on_wait: called before a patient request waits.

        Raises:
            NoCapacity: the GPUs are not free in time, or this node has too few.
        """
        known = find_instance_type(instance_type)
        demand = Demand(gpus=known.gpus if known else 0, hosts=len(holders), fraction=fraction)
        if self._mode == "unmanaged":
            return GpuShare(None, [None] * demand.hosts)
        if demand.gpus == 0:
            return GpuShare(None, [()] * demand.hosts)
        await self._list()
        if not self._gpus and self._mode == "auto":
            # A laptop without a GPU stands in for the type, as it does for memory.
            return GpuShare(None, [None] * demand.hosts)
        request = _Request(instance_type=instance_type, demand=demand, holders=holders)
        if not self._could_ever(request):
            raise NoCapacity(self._too_few(request))
        if not patient:
            return await self._wait(request, wait_seconds)
        self._patient.append(request)
        try:
            if (delay := self._jobs_from - self._clock.monotonic()) > 0:
                on_wait()
                await self._clock.sleep(delay)
            if not self._is_next(request) or self._allocation(request, self._free()) is None:
                on_wait()
            return await self._wait(request, wait_seconds)
        finally:
            self._patient.remove(request)
            self.wake()

    def release(self, share: GpuShare) -> None:
        self._shares.remove(share)
        self.wake()

    def wake(self) -> None:
        """Lets every waiting request look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def report(self) -> GpuList:
        """Lists the GPUs for `sagehen status`; begins to list them again if there are none."""
        if self._mode == "unmanaged":
            return GpuList()
        if not self._gpus:
            self._list_soon()
        free = self._free()
        return GpuList(
            gpus=tuple(
                GpuReport(
                    id=gpu.id,
                    uuid=gpu.uuid,
                    name=gpu.name,
                    memory_mib=gpu.memory_mib,
                    free=float(free[gpu.id]),
                    holders=self._holders(gpu.id),
                )
                for gpu in self._gpus.values()
            ),
            problem=self._problem,
            uses_cpu=self._mode == "auto" and not self._gpus,
        )

    def utilization(self, gpus: Sequence[str]) -> dict[str, float]:
        """Returns the last readings; never waits for the driver, which may hang."""
        now = self._clock.monotonic()
        if now >= self._usage_at + USAGE_SECONDS and (
            self._reading is None or self._reading.done()
        ):
            self._usage_at = now
            self._reading = asyncio.create_task(self._read_usage())
        if now >= self._usage_valid_until:
            return {}
        uuids = [self._gpus[gpu].uuid for gpu in gpus]
        usages = [self._usage[uuid] for uuid in uuids if uuid in self._usage]
        if not usages:
            return {}
        return {
            "GPUUtilization": sum(usage.compute for usage in usages),
            "GPUMemoryUtilization": sum(usage.memory for usage in usages),
        }

    async def _wait(self, request: _Request, wait_seconds: float) -> GpuShare:
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            changed = self._changed
            if self._is_next(request) and (share := self._take(request)) is not None:
                return share
            left = deadline - self._clock.monotonic()
            if self._will_fit(request):
                await changed.wait()
            elif left > 0:
                await first_of(changed.wait(), self._clock.sleep(left))
            else:
                raise NoCapacity(self._in_use(request))

    def _is_next(self, request: _Request) -> bool:
        return request not in self._patient or request is self._patient[0]

    def _take(self, request: _Request) -> GpuShare | None:
        chosen = self._allocation(request, self._free())
        if chosen is None:
            return None
        share = GpuShare(self, chosen, request.holders, request.demand.fraction)
        self._shares.append(share)
        log.info(
            "GPUs %s are reserved for %s.",
            ", ".join(gpu for gpus in chosen for gpu in gpus),
            request.holders[0],
            extra={"action": "gpus_reserved"},
        )
        return share

    def _allocation(self, request: _Request, free: dict[str, Fraction]) -> Allocation | None:
        exact = self._mode == "require"
        per_host = gpus_per_host(request.demand, len(self._gpus), exact=exact)
        return allocate(free, request.demand, per_host)

    def _could_ever(self, request: _Request) -> bool:
        return self._allocation(request, dict.fromkeys(self._gpus, WHOLE)) is not None

    def _will_fit(self, request: _Request) -> bool:
        """Whether the shares that are being released are enough."""
        staying = [share for share in self._shares if not share.leaving]
        return len(staying) < len(self._shares) and (
            self._allocation(request, self._free(staying)) is not None
        )

    def _free(self, shares: Sequence[GpuShare] | None = None) -> dict[str, Fraction]:
        free = dict.fromkeys(self._gpus, WHOLE)
        for share in self._shares if shares is None else shares:
            for gpus in share.hosts:
                for gpu in gpus or ():
                    free[gpu] -= share.fraction
        return free

    def _holders(self, gpu: str) -> tuple[GpuHolder, ...]:
        return tuple(
            msgspec.structs.replace(holder, fraction=float(share.fraction))
            for share in self._shares
            for holder, gpus in zip(share.holders, share.hosts, strict=True)
            if gpu in (gpus or ())
        )

    async def _list(self) -> None:
        if not self._gpus:
            self._list_soon()
        if self._listing is not None:
            await asyncio.wait({self._listing})

    def _list_soon(self) -> None:
        if self._listing is None or (
            self._listing.done() and self._clock.monotonic() >= self._list_again_at
        ):
            self._listing = asyncio.create_task(self._read_gpus())

    async def _read_gpus(self) -> None:
        problem = None
        try:
            listed = await self._driver.list_gpus() if self._driver.is_installed else []
        except DriverError as error:
            listed, problem = [], str(error)
            log.warning(
                "The GPUs of this machine are not known: %s.",
                problem,
                extra={"action": "gpus_listed"},
            )
        chosen = [gpu for gpu in listed if self._is_chosen(gpu)]
        if listed and not chosen:
            problem = (
                "the setting gpu_devices and the server's CUDA_VISIBLE_DEVICES name none of the "
                "GPUs that nvidia-smi lists"
            )
            log.warning("Instances have no GPU: %s.", problem, extra={"action": "gpus_listed"})
        self._problem = problem
        self._gpus = {gpu.id: gpu for gpu in chosen}
        self._list_again_at = self._clock.monotonic() + LIST_AGAIN_SECONDS
        if chosen:
            names = ", ".join(f"{gpu.id} ({gpu.name})" for gpu in chosen)
            log.info("Instances may have the GPUs %s.", names, extra={"action": "gpus_listed"})

    def _is_chosen(self, gpu: Gpu) -> bool:
        return all(
            devices is None or gpu.id in devices or gpu.uuid in devices for devices in self._chosen
        )

    async def _read_usage(self) -> None:
        try:
            self._usage = await self._driver.usage()
        except DriverError as error:
            log.warning(
                "The utilization of GPUs cannot be read: %s.",
                error,
                extra={"action": "gpu_usage"},
            )
        else:
            self._usage_valid_until = self._clock.monotonic() + USAGE_VALID_SECONDS

    def _too_few(self, request: _Request) -> str:
        total = len(self._gpus)
        has = f"this machine has {_counted(total)}" if total else "this machine has no GPU"
        reason = f"{_needs(request)}, and {has}"
        return f"{reason}: {self._problem}" if self._problem else reason

    def _in_use(self, request: _Request) -> str:
        holders = dict.fromkeys(str(holder) for share in self._shares for holder in share.holders)
        return (
            f"{_needs(request)}, and too few of this machine's {_counted(len(self._gpus))} are "
            f"free; held by: {'; '.join(holders)}"
        )


def _needs(request: _Request) -> str:
    demand = request.demand
    share = "" if demand.fraction == WHOLE else f"{float(demand.fraction):g} of "
    hosts = f" on each of {demand.hosts} hosts" if demand.hosts > 1 else ""
    return f"{request.instance_type} needs {share}{_counted(demand.gpus)}{hosts}"


def _counted(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
