"""kill -9 of anything at random while clients enqueue: what was answered with 202 is done once.

`ASYNC_KILL_ROUNDS=200 pytest tests/faults/test_async_kills.py` does it as often as it takes to
believe it; a run of all tests kills one of each.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter

import pytest

from support.processes import container_pids
from support.server import eventually
from support.sure_endpoint import (
    Clients,
    Notices,
    assert_nothing_more,
    begin_sure_endpoint,
    is_drained,
    objects,
    wrongs,
)

ROUNDS = int(os.environ.get("ASYNC_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("ASYNC_KILL_SEED", "0")) or random.randrange(1, 2**32)
ROLES = ("control", "gateway", "agent", "instance")
TIMEOUT_SECONDS = 120


class Killer:
    """Kills one process at a time, and waits until another has taken its place."""

    def __init__(self, server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.killed: Counter[str] = Counter()
        self._left: list[str] = []
        """Each has its turn, in an order of chance."""

    def kill_one(self) -> None:
        if not self._left:
            self._left = self._chance.sample(ROLES, len(ROLES))
        role = self._left.pop()
        before = self._pids(role)
        if not before:
            return  # An instance that has not come back yet: another round kills something else.
        victim = self._chance.choice(sorted(before))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self.killed[role] += 1
        eventually(lambda: bool(self._pids(role) - before), TIMEOUT_SECONDS)

    def _pids(self, role: str) -> set[int]:
        pids = self._server.pids()
        if role != "instance":
            return {pids[role]} if role in pids else set()
        try:
            return set(container_pids(pids["agent"]))
        except KeyError:
            return set()


@pytest.fixture(scope="module")
def sure(make_server, make_deployer):
    """A server with an asynchronous endpoint of two instances; the URL of its notices' queue."""
    server = make_server()
    return server, begin_sure_endpoint(make_deployer(server))


@pytest.mark.timeout(max(600, ROUNDS * 20))
def test_what_was_accepted_is_done_once_whatever_is_killed(sure):
    server, queue = sure
    killer = Killer(server, random.Random(SEED))
    started = time.monotonic()
    with Notices(server, queue) as notices:
        with Clients(server) as clients:
            told = clients.told
            clients.ahead = lambda: len(told.accepted) - len(notices.ids)
            for _ in range(ROUNDS):
                enough = len(told.accepted) + 20
                eventually(lambda enough=enough: len(told.accepted) >= enough, TIMEOUT_SECONDS)
                killer.kill_one()
        eventually(lambda: told.accepted.keys() <= notices.ids.keys(), TIMEOUT_SECONDS)
        # What was queued without a 202 ends too, and must not while the objects are counted.
        eventually(lambda: is_drained(server), TIMEOUT_SECONDS)
        written = objects(server)
        eventually(lambda: len(notices.ids) >= len(written), TIMEOUT_SECONDS)
    print(  # noqa: T201
        f"\n{ROUNDS} rounds, seed {SEED}, {time.monotonic() - started:.0f} s: killed "
        f"{dict(killer.killed)}, accepted {len(told.accepted)}, without an answer "
        f"{len(told.unanswered)}"
    )
    wrong = [*wrongs(told, notices, written)]
    assert not wrong, (SEED, wrong[:20])
    assert_nothing_more(told, notices, written)
