"""Keeps the fleet's nodes those of the table, and the table that of the nodes there are.

Runs in every control of a cluster: each keeps its own row, the leading one sees to all others.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake, in_thread
from sagehen.base.errors import SagehenError
from sagehen.placement import store
from sagehen.placement.fleet import Fleet
from sagehen.placement.records import NodeRecord
from sagehen.state.database import Database, notify

__all__ = ["NODES_CHANGED", "NodeLoop", "NodeSource"]

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
NOTE_SEEN_SECONDS = 30.0
REGISTER_SECONDS = 10.0
FORGET_MARGIN_SECONDS = 60.0
NODES_CHANGED = "nodes"
"""channel of the database's notifications"""


class NodeSource(Protocol):
    """A source of nodes besides the servers that register themselves."""

    async def update(self, records: Sequence[NodeRecord]) -> Sequence[NodeRecord]:
        """Returns the records that are new or different now. Raises Unavailable."""


class NodeLoop:
    """Args:
    epoch: returns this control's epoch; None while another leads.
    describe_own: makes this machine's row.
    forget_seconds: after which a node that nobody has seen is gone, with all its instances.
    """

    def __init__(
        self,
        database: Database,
        fleet: Fleet,
        epoch: Callable[[], int | None],
        describe_own: Callable[[], Awaitable[NodeRecord]],
        forget_seconds: float,
        clock: Clock,
        source: NodeSource | None = None,
    ) -> None:
        self._database = database
        self._fleet = fleet
        self._epoch = epoch
        self._describe_own = describe_own
        self._forget_seconds = forget_seconds + FORGET_MARGIN_SECONDS
        self._clock = clock
        self._source = source
        self._wake = Wake()
        self._note_due = 0.0
        self._seen: frozenset[str] = frozenset()
        self._written_epoch = 0
        self._silent_since: dict[str, float] = {}
        """monotonic: clocks of two machines may differ, and another control have led"""
        self._own_due = 0.0
        self._own_id = ""
        self.on_own: Callable[[NodeRecord], None] = lambda record: None
        """called with this machine's row in each turn"""
        database.listen(NODES_CHANGED, lambda _: self.hint())

    def hint(self) -> None:
        """Wakes the loop. Safe from any thread."""
        self._wake.hint()

    async def run(self) -> None:
        """Runs until cancelled; nodes go on."""
        self._wake.begin()
        try:
            while True:
                self._wake.clear()
                try:
                    await self.turn()
                except (SagehenError, SQLAlchemyError) as error:
                    log.error("Nodes cannot be kept up to date: %s", error, extra=_ABOUT)
                except Exception:
                    log.exception("Nodes cannot be kept up to date.", extra=_ABOUT)
                await self._wake.rest(TURN_SECONDS)
        finally:
            await self._fleet.stand_down()

    async def turn(self) -> None:
        epoch = self._epoch()
        if epoch is None:  # before the database is read, which may be away just then
            self._silent_since.clear()
        records = await self._register(await in_thread(self._read))
        self.on_own(next(each for each in records if each.node_id == self._own_id))
        if epoch is None:
            await self._fleet.stand_down()
            return
        if epoch != self._written_epoch:
            # Before agents hear of it: they refuse whoever asks with an older one.
            await in_thread(lambda: self._raise_epochs(epoch))
            # Another control may have led since the last turn.
            await self._fleet.stand_down()
            self._written_epoch = epoch
        # First: heartbeats keep the jobs of all nodes alive, and a source that is away, for example
        # because it died with the machine of the last leader, takes its time.
        await self._fleet.set_nodes(records)
        if self._source is not None:
            changed = await self._source.update(records)
            if changed:
                await in_thread(lambda: self._put(changed))
                records = await in_thread(self._read)
                await self._fleet.set_nodes(records)
        await self._note_seen(records, epoch)

    def _read(self) -> list[NodeRecord]:
        with self._database.read() as connection:
            return store.list_nodes(connection)

    async def _register(self, records: Sequence[NodeRecord]) -> Sequence[NodeRecord]:
        """Writes this machine's row where it is missing or out of date."""
        now = self._clock.monotonic()
        if any(each.node_id == self._own_id for each in records) and now < self._own_due:
            return records
        own = await self._describe_own()
        # A server may be back before Ray: its node has the same room as before.
        is_known = self._source is None or bool(own.ray_id)
        row = next((each for each in records if each.node_id == own.node_id), None)
        if row is None:
            new = msgspec.structs.replace(own, seen_at=self._clock.now())
        elif not self._own_id:  # this control has just started, perhaps with other addresses
            new = msgspec.structs.replace(
                own,
                is_draining=row.is_draining,
                seen_at=self._clock.now(),
                resources=own.resources if is_known else row.resources,
            )
        elif is_known:
            new = msgspec.structs.replace(row, resources=own.resources, ray_id=own.ray_id)
        else:
            new = row
        if new != row:
            await in_thread(lambda: self._put([new]))
        seconds = REGISTER_SECONDS if is_known else TURN_SECONDS
        self._own_id, self._own_due = own.node_id, now + seconds
        return [new, *(each for each in records if each.node_id != own.node_id)]

    def _raise_epochs(self, epoch: int) -> None:
        with self._database.write() as connection:
            store.raise_epochs(connection, epoch)

    def _put(self, records: Sequence[NodeRecord]) -> None:
        with self._database.write() as connection:
            for record in records:
                store.put(connection, record)
            notify(connection, NODES_CHANGED)

    async def _note_seen(self, records: Sequence[NodeRecord], epoch: int) -> None:
        """Writes now and then, and when another set of nodes answers."""
        alive = frozenset(node.node_id for node in self._fleet.nodes if node.is_alive)
        gone = self._find_gone(records, alive)
        if alive == self._seen and not gone and self._clock.monotonic() < self._note_due:
            return
        now = self._clock.now()
        await in_thread(lambda: self._write_seen(alive, gone, epoch, now))
        self._seen, self._note_due = alive, self._clock.monotonic() + NOTE_SEEN_SECONDS

    def _find_gone(self, records: Sequence[NodeRecord], alive: frozenset[str]) -> list[str]:
        """Returns the nodes that this control has not heard for long, since it leads, and those in
        whose place a server runs."""
        now = self._clock.monotonic()
        self._silent_since = {
            record.node_id: self._silent_since.get(record.node_id, now)
            for record in records
            if record.node_id not in alive
        }
        replaced = self._find_replaced(records, alive)
        return [
            node_id
            for node_id, since in self._silent_since.items()
            if now - since > self._forget_seconds or node_id in replaced
        ]

    def _find_replaced(self, records: Sequence[NodeRecord], alive: frozenset[str]) -> set[str]:
        """Returns the agents that Ray had on machines where a server answers now, and that have
        ended: Ray may be quicker to come up than a machine's server. The machine answers and
        refuses connections at the agent's address, so its silence is no fault of the network; and
        Ray starts no agent beside a server."""
        hosts = {each.host for each in records if each.has_control and each.node_id in alive}
        ended = {node.node_id for node in self._fleet.nodes if node.heartbeat.has_ended}
        return {
            each.node_id
            for each in records
            if each.ray_id and not each.has_control and each.host in hosts and each.node_id in ended
        }

    def _write_seen(
        self, alive: frozenset[str], gone: Sequence[str], epoch: int, now: float
    ) -> None:
        with self._database.write() as connection:
            store.note_seen(connection, alive, epoch, now)
            for node_id in gone:
                log.warning("A node is forgotten.", extra={"action": "forget", "node": node_id})
                store.forget(connection, node_id)


_ABOUT = {"action": "nodes"}
