"""Processes of a running server, killed at random; and which failures of requests they explain."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inside import Inside, client_ports, is_healthy, wait_until_stopped

GATEWAY_CHANCE = 0.25
"""the probability that a kill hits a gateway, if gateways are killed"""
BREAKS_WITHIN_SECONDS = 2.0
"""After its gateway was killed, a connection is lost at once; so much later it is not the cause."""
NO_ANSWER = "could not get a response from the"
"""part of the ModelError for a lost connection to the container"""

Failure = dict[str, Any]
"""As paced.py tells it."""


@dataclass(eq=False)
class Kill:
    name: str
    """An instance's id, or a gateway's role."""
    pid: int
    at: float
    """the time since when the process did nothing"""
    in_flight: int
    """Requests that the gateways waited for from it, or connections that it had with clients."""
    ports: frozenset[int] = frozenset()
    """the clients' ports of a killed gateway's connections"""
    back_at: float | None = None
    failures: list[Failure] = field(default_factory=list)
    """failed calls that this kill explains"""

    @property
    def is_gateway(self) -> bool:
        return self.name.startswith("gateway")

    @property
    def seconds_away(self) -> float | None:
        return None if self.back_at is None else self.back_at - self.at

    def explains(self, failure: Failure) -> bool:
        """Returns whether the killed process had the request or the connection of `failure`."""
        if len(self.failures) >= self.in_flight:
            return False
        if self.is_gateway:
            return (
                failure["kind"] in ("connection", "idle")
                and failure["port"] in self.ports
                and failure["port"] not in {known["port"] for known in self.failures}
                and self.at <= failure["at"] < self.at + BREAKS_WITHIN_SECONDS
            )
        return (
            failure["status"] == 424
            and NO_ANSWER in failure["text"]
            and failure["sent_at"] <= self.at <= failure["at"]
        )


class Killer:
    """Kills one process after another."""

    def __init__(
        self, inside: Inside, per_minute: float, with_gateways: bool, seed: int, start: float
    ) -> None:
        self._inside = inside
        self._mean_seconds = 60 / per_minute if per_minute else float("inf")
        self._with_gateways = with_gateways
        self._random = random.Random(seed)
        self._next_at = start + self._pause()
        self.kills: list[Kill] = []

    def kill_what_is_due(self, now: float) -> None:
        kill = self._kill() if now >= self._next_at else None
        if kill is not None:
            self._next_at = now + self._pause()
            self.kills.append(kill)
            print(f"{kill.name} is killed with {kill.in_flight} under way", file=sys.stderr)

    def see_what_is_back(self, now: float) -> None:
        for kill in self.away:
            if self._is_back(kill):
                kill.back_at = now
                print(f"{kill.name} is back after {now - kill.at:.2f} s", file=sys.stderr)

    @property
    def away(self) -> list[Kill]:
        return [kill for kill in self.kills if kill.back_at is None]

    def _pause(self) -> float:
        # At least half of the mean and at most twice: at random, but none is left out.
        return self._mean_seconds * min(2.0, 0.5 + self._random.expovariate(2.0))

    def _kill(self) -> Kill | None:
        """Returns None if no process can be spared now."""
        if self._with_gateways and self._random.random() < GATEWAY_CHANCE:
            return self._kill_gateway()
        routed, pids = self._inside.routed(), self._inside.instances()
        away = {kill.name for kill in self.away}
        serving = sorted(key for key in routed if key in pids and key not in away)
        if len(serving) < 2:
            return None
        victim = self._random.choice(serving)
        pid = pids[victim]
        # Stopped for a moment first, so that what it had begun can be counted: what is sent to it
        # from here on it never reads.
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until_stopped(pid)
            at = time.monotonic()
            in_flight = self._inside.outstanding(routed[victim])
        finally:
            os.kill(pid, signal.SIGKILL)
        return Kill(victim, pid, at, in_flight)

    def _kill_gateway(self) -> Kill | None:
        gateways = self._inside.gateways()
        if self.away or not gateways:
            return None
        victim = self._random.choice(sorted(gateways))
        ports = client_ports(gateways[victim])
        at = time.monotonic()
        os.kill(gateways[victim], signal.SIGKILL)
        return Kill(victim, gateways[victim], at, len(ports), ports)

    def _is_back(self, kill: Kill) -> bool:
        if kill.is_gateway:
            pid = self._inside.gateways().get(kill.name, kill.pid)
            return pid != kill.pid and self._inside.is_started_gateway(pid)
        pid = self._inside.instances().get(kill.name, kill.pid)
        route = self._inside.routed().get(kill.name)
        return pid != kill.pid and route is not None and is_healthy(route)


def unexplained(failures: Iterable[Failure], kills: Sequence[Kill]) -> list[Failure]:
    """Returns failures that no kill explains; assigns the others to the latest kill."""
    lost = []
    for failure in failures:
        cause = next((kill for kill in reversed(kills) if kill.explains(failure)), None)
        if cause is None:
            lost.append(failure)
        else:
            cause.failures.append(failure)
    return lost
