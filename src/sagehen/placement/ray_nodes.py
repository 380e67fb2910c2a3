"""Ray: which nodes there are, an agent on each, and reservations. No other file imports `ray`.

Every call blocks. Requests never travel through Ray, and Ray does not decide whether a node lives:
that is for heartbeats.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sagehen.frame.nodes import Resources
from sagehen.placement.ray_messages import RayNode, RayReservation

__all__ = ["RayNodes", "start_local_cluster"]

log = logging.getLogger(__name__)

LOCAL_CPUS = 1024
LOCAL_MEMORY_BYTES = 64 * 2**40
NODE_LABEL = "ray.io/node-id"


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)
class NodeProcess:
    """A detached actor, which keeps a node's supervisor as a child process.

    The supervisor dies with the actor. A new actor is made when this one has died.
    """

    def __init__(self, start: bytes, home: str) -> None:
        host = ray.util.get_node_ip_address()
        folder = Path(os.environ.get("SAGEHEN_HOME") or f"{home}-{host}")
        module = ["-m", "sagehen.app.cluster_node", f"--parent={os.getpid()}"]
        environment = {key: os.environ[key] for key in os.environ if not key.startswith("RAY_")}
        environment.pop("SAGEHEN_HOME", None)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *module, "--home", str(folder), "--host", host],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(start)
        self._process.stdin.flush()
        self._addresses = self._process.stdout.readline()
        if not self._addresses:
            raise RuntimeError(f"The node did not start: see {folder / 'node.log'}.")

    def addresses(self) -> bytes:
        """Returns NodeAddresses as JSON."""
        return bytes(self._addresses)

    def wait(self) -> int:
        """Returns when the node's processes have ended."""
        return self._process.wait()


@dataclass
class _Agent:
    actor: Any
    addresses: Any
    """a reference"""
    end: Any
    """the same"""


class RayNodes:
    """Args:
    address: of Ray's head, `host:port` or `auto`.
    namespace: of the cluster's actors.
    own_host: of Ray's node on this machine, where there are several; None: the only one.
    home: of this server; nodes have theirs beside it, unless their SAGEHEN_HOME says otherwise.
    """

    def __init__(
        self, address: str, namespace: str, home: Path, own_host: str | None = None
    ) -> None:
        self._namespace = namespace
        self._home = home
        self._agents: dict[str, _Agent] = {}
        try:
            ray.init(
                address=address,
                namespace=namespace,
                _node_ip_address=own_host,
                logging_level=logging.WARNING,
                log_to_driver=False,
            )
        except ray.exceptions.RayError as error:  # such as a token that is missing
            raise ConnectionError(str(error)) from error
        self.own_id = str(ray.get_runtime_context().get_node_id())

    def close(self) -> None:
        """Leaves Ray; ends a cluster that was started here."""
        ray.shutdown()
        while _clusters:
            _clusters.pop().shutdown()

    def nodes(self) -> list[RayNode]:
        """Lists the nodes that Ray holds to be alive."""
        found = []
        for node in ray.nodes():
            if node["Alive"]:
                ray_id = str(node["NodeID"])
                found.append(
                    RayNode(
                        ray_id=ray_id,
                        host=str(node["NodeManagerAddress"]),
                        resources=_resources(node["Resources"]),
                        addresses=self._addresses(ray_id),
                    )
                )
        return found

    def start_agent(self, ray_id: str, start: bytes) -> None:
        """Has an actor run the node's processes, unless one does."""
        if ray_id in self._agents:
            return
        actor = NodeProcess.options(  # type: ignore[attr-defined]
            name=f"node-{ray_id}",
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            scheduling_strategy=NodeAffinitySchedulingStrategy(ray_id, soft=False),
        ).remote(start, str(self._home))
        self._agents[ray_id] = _Agent(actor, actor.addresses.remote(), actor.wait.remote())

    def stop_agent(self, ray_id: str) -> None:
        agent = self._agents.pop(ray_id, None)
        if agent is not None:
            ray.kill(agent.actor)

    def reserve(self, wanted: Sequence[RayReservation]) -> None:
        """Makes the reservations these, and no others. One without a node is demand, for which
        Ray's autoscaler adds a node."""
        missing = {self._group_name(each): each for each in wanted}
        for group_id, group in placement_group_table().items():
            name = str(group["name"])
            if group["state"] == "REMOVED" or not name.startswith(f"{self._namespace}/"):
                continue
            if missing.pop(name, None) is None:
                remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(group_id)))
        for name, each in missing.items():
            selector = [{NODE_LABEL: each.ray_id}] if each.ray_id else None
            placement_group(
                [_bundle(each.resources)],
                name=name,
                lifetime="detached",
                bundle_label_selector=selector,
            )

    def _group_name(self, reservation: RayReservation) -> str:
        return f"{self._namespace}/{reservation.key}@{reservation.ray_id}"

    def _addresses(self, ray_id: str) -> bytes:
        """Empty while the node's agent has not started."""
        agent = self._agents.get(ray_id)
        if agent is None:
            return b""
        ended, _ = ray.wait([agent.end], timeout=0)
        try:
            if ended:
                ray.get(agent.end)
                raise RuntimeError("its processes have ended")
            ready, _ = ray.wait([agent.addresses], timeout=0)
            return bytes(ray.get(agent.addresses)) if ready else b""
        except Exception as error:
            about = {"action": "ray_agent", "ray_id": ray_id, "reason": str(error)[-500:]}
            log.warning("The agent of a node has ended, and is started again.", extra=about)
            self.stop_agent(ray_id)
            return b""


def start_local_cluster(count: int) -> str:
    """Starts Ray's head and further nodes at 127.0.0.2, 127.0.0.3 and so on; they end with this
    process. Returns the head's address.

    As on a machine of its own, the instance types' resources do not bound what runs there.
    """
    from ray.cluster_utils import Cluster

    room = {"num_cpus": LOCAL_CPUS, "memory": LOCAL_MEMORY_BYTES, "num_gpus": _local_gpus()}
    cluster = Cluster()
    for number in range(count):
        head = {"include_dashboard": False} if number == 0 else {}
        # Ray takes 127.0.0.1 for this machine's other address.
        cluster.add_node(node_ip_address=f"127.0.0.{number + 2}", **room, **head)
    _clusters.append(cluster)
    return str(cluster.address)


_clusters: list[Any] = []
"""kept, for they end with their objects"""


def _local_gpus() -> int:
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _resources(found: Mapping[str, float]) -> Resources:
    return Resources(
        cpus=found.get("CPU", 0.0),
        memory_bytes=int(found.get("memory", 0)),
        gpus=found.get("GPU", 0.0),
    )


def _bundle(needed: Resources) -> dict[str, float]:
    amounts = {"CPU": needed.cpus, "memory": needed.memory_bytes, "GPU": needed.gpus}
    return {name: amount for name, amount in amounts.items() if amount} or {"CPU": 0.001}
