"""Nodes from Ray: the leading control has an agent started on each, and reserves what they run."""

import ipaddress
import logging
import pickle
import re
from collections.abc import Callable, Sequence

import msgspec

from sagehen.app.cluster import NodeAddresses, load_authority
from sagehen.app.cluster_node import NodeStart
from sagehen.app.roles.common import Start
from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import issue
from sagehen.base.concurrency import in_thread
from sagehen.base.credentials import load_credentials, load_token
from sagehen.base.errors import SagehenError
from sagehen.base.pickled_settings import pickle_settings, with_values
from sagehen.frame.nodes import Resources
from sagehen.placement.ray_app import RayClient
from sagehen.placement.ray_messages import RayNode, RayNodeList, RayOrders, RayReservation
from sagehen.placement.records import NodeRecord

__all__ = ["RaySource"]

log = logging.getLogger(__name__)

START_AFTER_SECONDS = 3.0
"""after a node was seen first: a server that starts there registers itself"""
REPEAT_SECONDS = 10.0
AWAY_SECONDS = 15.0
"""before operators are told: a server may start before Ray"""
_NOT_IN_IDS = re.compile(r"[^a-z0-9]+")


class RaySource:
    """A NodeSource. Without Ray, everything goes on with the nodes that there are.

    Args:
        wanted: returns what is to be reserved, by node id; empty: wherever there is room.
    """

    def __init__(
        self,
        start: Start,
        client: RayClient,
        wanted: Callable[[], Sequence[tuple[str, Resources, str]]],
        clock: Clock,
    ) -> None:
        self._start = start
        self._client = client
        self._wanted = wanted
        self._clock = clock
        self._first_seen: dict[str, float] = {}
        self._reserved: tuple[RayReservation, ...] | None = None
        self._repeat_at = 0.0
        self._away_since: float | None = None
        self.own: RayNode | None = None
        """Ray's node on this machine, once Ray has answered"""

    def problems(self) -> list[str]:
        """Says that Ray cannot be used, once that has lasted, and what to do."""
        since = self._away_since
        if since is None or self._clock.monotonic() - since < AWAY_SECONDS:
            return []
        settings, log_file = self._start.settings, self._start.home.logs / "ray.log"
        return [
            f"Ray at {settings.cluster} cannot be used: nodes that only Ray runs may be missing, "
            f"and nothing is reserved there. {log_file} says why. Look whether Ray runs at this "
            "address with this machine as a node, and whether RAY_AUTH_MODE and Ray's token are "
            "the same as there."
        ]

    async def look(self) -> None:
        """Finds this machine's own node, for a control that does not lead: another one, when Ray
        was started anew here."""
        await self.update(())

    async def update(self, records: Sequence[NodeRecord]) -> Sequence[NodeRecord]:
        """Returns the records that are new or different now."""
        try:
            listed = await self._client.nodes()
            self.own = next((each for each in listed.nodes if each.ray_id == listed.own_id), None)
            if records:
                await self._order(listed, records)
        except SagehenError as error:
            if self._away_since is None:
                self._away_since = self._clock.monotonic()
                log.warning("Ray is away: %s", error, extra={"action": "ray"})
            return ()
        self._away_since = None
        rows = {record.node_id: record for record in records}
        found = [record for node in listed.nodes if (record := self._record(node)) is not None]
        return [each for each in found if _differs(rows.get(each.node_id), each)]

    async def _order(self, listed: RayNodeList, records: Sequence[NodeRecord]) -> None:
        now, nodes = self._clock.monotonic(), listed.nodes
        self._first_seen = {node.ray_id: self._first_seen.get(node.ray_id, now) for node in nodes}
        servers = {record.ray_id for record in records if record.has_control} | {listed.own_id}
        # Ray's node of a machine that came back is a new one; its server takes longer to start.
        hosts = {record.host for record in records if record.has_control}
        without = [
            node
            for node in nodes
            if node.ray_id not in servers
            and node.host not in hosts
            and not node.addresses
            and now - self._first_seen[node.ray_id] >= START_AFTER_SECONDS
        ]
        starts = await in_thread(lambda: {node.ray_id: self._make(node) for node in without})
        doubled = tuple(node.ray_id for node in nodes if node.ray_id in servers and node.addresses)
        ray_ids = {record.node_id: record.ray_id for record in records}
        reservations = tuple(
            RayReservation(key=key, resources=needed, ray_id=ray_ids.get(node_id, ""))
            for key, needed, node_id in self._wanted()
        )
        is_new = reservations != self._reserved or now >= self._repeat_at
        if starts or doubled or is_new:
            await self._client.order(
                RayOrders(
                    start_agents=starts,
                    stop_agents=doubled,
                    reservations=reservations if is_new else None,
                )
            )
        if is_new:
            self._reserved, self._repeat_at = reservations, now + REPEAT_SECONDS

    def _record(self, node: RayNode) -> NodeRecord | None:
        if not node.addresses or (self.own is not None and node.ray_id == self.own.ray_id):
            return None
        addresses = msgspec.json.decode(node.addresses, type=NodeAddresses)
        return NodeRecord(
            node_id=addresses.node_id,
            agent_address=addresses.agent,
            peer_address=addresses.peer,
            gateway_address=addresses.gateway,
            resources=node.resources,
            ray_id=node.ray_id,
            seen_at=self._clock.now(),
            version=addresses.version,
        )

    def _make(self, node: RayNode) -> bytes:
        """Returns what a node needs to begin, pickled."""
        home, settings = self._start.home, self._start.settings
        # The same machine has the same id when Ray's node there is a new one.
        node_id = f"node-{_NOT_IN_IDS.sub('-', node.host.lower()).strip('-')}"[:40]
        host = node.host if _is_one_address(settings.host) else settings.host
        pickled = with_values(
            pickle_settings(settings),
            host=host,
            cluster_token=None,
            database_url=settings.state_url,
        )
        start = NodeStart(
            node_id=node_id,
            certificate=issue(load_authority(home), node_id),
            keys=load_credentials(home.credentials),
            token=load_token(home.token),
            settings=pickled,
            objects=None if settings.object_store_url else home.objects,
        )
        return pickle.dumps(start)


def _differs(row: NodeRecord | None, found: NodeRecord) -> bool:
    if row is None:
        return True
    same = msgspec.structs.replace(
        found,
        is_draining=row.is_draining,
        is_leaving=row.is_leaving,
        epoch=row.epoch,
        seen_at=row.seen_at,
    )
    return same != row


def _is_one_address(host: str) -> bool:
    """Whether a server listens on one address only, which other machines do not have."""
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return True
