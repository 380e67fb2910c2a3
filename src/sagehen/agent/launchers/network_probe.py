"""Tries at start-up which networks the kernel lets this user give to containers."""

import logging
import subprocess
from pathlib import Path

from sagehen.agent.launchers.launcher import LaunchPlan, NetworkPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.own_network import NetworkSupport
from sagehen.agent.launchers.spawn import spawn

__all__ = ["describe_networks", "find_network_support"]

log = logging.getLogger(__name__)


async def find_network_support(folder: Path, orphans: Orphans) -> NetworkSupport:
    """Tries both kinds of networks; logs why one is missing."""
    outgoing = await _try(NetworkPlan(outgoing=True), folder, orphans)
    if outgoing is None:
        return NetworkSupport(None, None)
    support = NetworkSupport(await _try(NetworkPlan(outgoing=False), folder, orphans), outgoing)
    log.info("Walls around containers are missing: %s.", "; ".join(describe_networks(support)))
    return support


def describe_networks(support: NetworkSupport) -> list[str]:
    """The missing networks, in the form of `describe_missing` of the other walls."""
    if support.missing is not None:
        return [
            f"network ({support.missing}): commands must listen on SAGEMAKER_BIND_TO_PORT, and "
            "EnableNetworkIsolation is refused unless the setting network_isolation says otherwise"
        ]
    if support.missing_outgoing is not None:
        return [
            f"network ({support.missing_outgoing}): commands must listen on "
            "SAGEMAKER_BIND_TO_PORT, unless they are isolated"
        ]
    return []


async def _try(network: NetworkPlan, folder: Path, orphans: Orphans) -> str | None:
    """Returns why the network cannot be had."""
    plan = LaunchPlan(
        instance_id="probe",
        name="probe",
        command=("/bin/true",),
        environment={},
        folder=folder,
        log=folder / "unused",
        log_bytes=0,
        network=network,
    )
    try:
        process = await spawn(plan, subprocess.DEVNULL, None, orphans)
    except OSError as error:
        return error.strerror or str(error)
    process.give_up()
    return None
