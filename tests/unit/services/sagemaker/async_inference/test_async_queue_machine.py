"""Whatever users, workers and time do to the queue: nothing is lost, nothing ends twice."""

from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import Connection

from sagehen.services.sagemaker.async_inference import lease_store as leases
from sagehen.services.sagemaker.async_inference import request_store as queue
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    OutputTarget,
)
from sagehen.state.database import Database

NAMES = ("A", "B")
names = st.sampled_from(NAMES)
finals = st.sampled_from([state for state in AsyncState if state.is_final])
any_number = st.integers(0, 1000)


class Queue(RuleBasedStateMachine):
    """The queue beside a dictionary of what every request should be."""

    connection: Connection
    seen: ClassVar[set[AsyncState]] = set()
    """Of all runs: what became of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = self.connection.begin_nested()
        self.now = 0.0
        self.states: dict[int, AsyncState] = {}
        self.names: dict[int, str] = {}
        self.attempts: dict[int, int] = {}
        self.until: dict[int, float] = {}
        self.held: list[tuple[int, int]] = []
        """Every claim that a worker was ever given."""

    def teardown(self) -> None:
        self.savepoint.rollback()

    @rule(name=names, count=st.integers(1, 3), ttl=st.integers(1, 50))
    def enqueue(self, name: str, count: int, ttl: int) -> None:
        request = AsyncRequest(
            request_id="r",
            inference_id="i",
            endpoint_name=name,
            received_at=self.now,
            expires_at=self.now + ttl,
            timeout_seconds=1,
            output=OutputTarget(location="s3://o/x"),
        )
        for sequence in queue.enqueue(self.connection, [(request, b"b")] * count):
            assert sequence > max(self.states, default=0)
            self.states[sequence] = AsyncState.QUEUED
            self.names[sequence] = name
            self.attempts[sequence] = 0

    def take(self, sequences: list[int]) -> None:
        for sequence in sequences:
            assert self.states[sequence] is AsyncState.QUEUED
            self.states[sequence] = AsyncState.LEASED
            self.attempts[sequence] += 1
            self.until[sequence] = self.now + 10
            self.held.append((sequence, self.attempts[sequence]))

    @rule(name=names, limit=st.integers(1, 4))
    def lease(self, name: str, limit: int) -> None:
        got = leases.lease(self.connection, name, limit, "w", self.now, self.now + 10)
        waiting = [one for one, state in self.states.items() if state is AsyncState.QUEUED]
        mine = sorted(one for one in waiting if self.names[one] == name)
        assert [one.sequence for one in got] == mine[:limit]
        self.take([one.sequence for one in got])

    @rule()
    def lease_due(self) -> None:
        got = leases.lease_due(self.connection, 9, "w", self.now, self.now + 10)
        self.take([one.sequence for one in got])

    @rule(which=any_number, state=finals, late=st.booleans())
    def finish(self, which: int, state: AsyncState, late: bool) -> None:
        # Of all claims there ever were, most are old.
        claims = self.held if late else [one for one in self.held if self.is_mine(*one)]
        if claims:
            sequence, attempt = claims[which % len(claims)]
            mine = self.is_mine(sequence, attempt)
            outcome = AsyncOutcome(state=state)
            done = leases.finish(self.connection, sequence, attempt, outcome, self.now)
            assert done == mine
            if mine:
                self.states[sequence] = state

    @rule(which=any_number, lost=st.booleans())
    def give_back(self, which: int, lost: bool) -> None:
        if self.held:
            sequence, attempt = self.held[which % len(self.held)]
            mine = self.is_mine(sequence, attempt)
            assert leases.give_back(self.connection, sequence, attempt, lost=lost) == mine
            if mine:
                self.states[sequence] = AsyncState.QUEUED

    def is_mine(self, sequence: int, attempt: int) -> bool:
        leased = self.states[sequence] is AsyncState.LEASED
        return leased and self.attempts[sequence] == attempt

    @rule()
    def renew(self) -> None:
        lost, _ = leases.renew(self.connection, self.held, self.now + 10)
        gone = [one for one, attempt in self.held if not self.is_mine(one, attempt)]
        # Who holds it now may be told by an older claim of the same worker too.
        assert set(lost) <= set(gone)
        for sequence, attempt in self.held:
            if self.is_mine(sequence, attempt):
                self.until[sequence] = self.now + 10

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def reclaim(self) -> None:
        over = [
            sequence
            for sequence, state in self.states.items()
            if state is AsyncState.LEASED and self.until[sequence] <= self.now
        ]
        assert leases.reclaim(self.connection, self.now, 1000) == len(over)
        self.states.update(dict.fromkeys(over, AsyncState.QUEUED))

    @rule(which=any_number)
    def cancel(self, which: int) -> None:
        if self.states:
            sequence = sorted(self.states)[which % len(self.states)]
            asked = queue.cancel(self.connection, sequence, self.now)
            assert asked == (not self.states[sequence].is_final)

    @rule()
    def redrive(self) -> None:
        again = queue.redrive(self.connection, sorted(self.states), self.now)
        failed = ("FAILED", "EXPIRED", "CANCELLED")
        assert again == sorted(one for one, state in self.states.items() if state in failed)
        self.states.update(dict.fromkeys(again, AsyncState.QUEUED))

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        for name in NAMES:
            mine = [state for one, state in self.states.items() if self.names[one] == name]
            counted = (mine.count(AsyncState.QUEUED), mine.count(AsyncState.LEASED))
            assert queue.backlog(self.connection, name) == counted
        for sequence, state in self.states.items():
            found = queue.get(self.connection, sequence)
            assert found is not None
            assert (found.state, found.attempt) == (state, self.attempts[sequence])
            self.seen.add(state)
            kept = queue.body(self.connection, sequence) is not None
            assert kept == (state is not AsyncState.SUCCEEDED)


@pytest.mark.timeout(100)
def test_any_order(database: Database) -> None:
    few = settings(
        max_examples=25,
        # What fails is told at once: to find the shortest way there takes minutes.
        phases=[Phase.generate],
        stateful_step_count=30,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with database.write() as connection:
        machine = type("Bound", (Queue,), {"connection": connection})
        run_state_machine_as_test(machine, settings=few)
    assert {AsyncState.QUEUED, AsyncState.LEASED} < Queue.seen  # some have ended too
