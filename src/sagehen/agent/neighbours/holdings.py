"""Tells control, and the keepers of directory entries, which artifacts are on this node's disk."""

import logging
from collections import Counter, defaultdict

from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.neighbours.directory import ArtifactDirectory
from sagehen.agent.neighbours.messages import HeldArtifacts
from sagehen.agent.neighbours.nodes import KnownNodes, NodeCalls
from sagehen.base.clock import Clock
from sagehen.base.errors import NotFound, Unavailable
from sagehen.frame.nodes import ModelList

__all__ = ["Announcer", "HeldModels"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
CALL_SECONDS = 5.0
MAX_ARTIFACTS_PER_CALL = 1000
ANNOUNCE_AGAIN_SECONDS = 300.0
"""A keeper that was started anew has lost its entries."""


class HeldModels:
    """The model data on disk, for placement. All models of a multi-model container count as one:
    their prefix."""

    def __init__(self) -> None:
        self.version = 1
        self._counts: Counter[str] = Counter()

    def note(self, artifact: Artifact, is_here: bool) -> None:
        """Called for each artifact that comes or goes."""
        if artifact.origin is None:
            return
        before = len(self._counts)
        for version in artifact.origin.versions:
            self._counts[version] += 1 if is_here else -1
            if not self._counts[version]:
                del self._counts[version]
        if len(self._counts) != before:
            self.version += 1

    def list(self) -> ModelList:
        return ModelList(version=self.version, models=tuple(self._counts))


class Announcer:
    """Tells the keepers of directory entries what is here: after a start, when nodes come or go,
    what was fetched while a keeper did not answer, and all of it now and then. Each of an
    artifact's keepers is told, because the second one is asked while the first does not answer."""

    def __init__(
        self,
        artifacts: ArtifactCache,
        nodes: KnownNodes,
        calls: NodeCalls,
        directory: ArtifactDirectory,
        clock: Clock,
    ) -> None:
        self._artifacts = artifacts
        self._nodes = nodes
        self._calls = calls
        self._directory = directory
        self._clock = clock
        self._announced: dict[tuple[str, str], float] = {}
        """when a keeper was told of an artifact, by their names; monotonic seconds"""

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                log.exception("Artifacts could not be announced.", extra={"action": "announce"})

    async def look(self) -> None:
        now = self._clock.monotonic()
        known: dict[tuple[str, str], float] = {}
        new: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, origin in self._artifacts.origins():
            for keeper in self._nodes.keepers(origin.url):
                told_at = self._announced.get((keeper, name))
                if told_at is not None and now - told_at < ANNOUNCE_AGAIN_SECONDS:
                    known[keeper, name] = told_at
                else:
                    new[keeper].append((origin.url, name))
        self._announced = known
        for keeper, artifacts in new.items():
            for start in range(0, len(artifacts), MAX_ARTIFACTS_PER_CALL):
                await self._announce(keeper, artifacts[start : start + MAX_ARTIFACTS_PER_CALL], now)

    async def _announce(self, keeper: str, artifacts: list[tuple[str, str]], now: float) -> None:
        own_id = self._nodes.own_id
        if keeper == own_id:
            for url, name in artifacts:
                self._directory.note_holder(url, name, own_id)
        else:
            message = HeldArtifacts(node_id=own_id, artifacts=tuple(artifacts))
            address = self._nodes.addresses().get(keeper, "")
            path = "/artifact-directory/holders"
            try:
                await self._calls.tell(keeper, address, path, message, CALL_SECONDS)
            except (Unavailable, NotFound):
                return  # tried again at the next look
        self._announced.update(((keeper, name), now) for _, name in artifacts)
