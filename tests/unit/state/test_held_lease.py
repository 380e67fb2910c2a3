"""A lease that a loop holds: by a lock on a file where all are on one machine, else by renewing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from sagehen.state.database import Database
from sagehen.state.leases import LEASE_SECONDS, LEASES, HeldLease, LeaseLock
from support.clock import HandClock
from support.state import copied_state


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1000.0)


@pytest.fixture
def renewing(empty_state: Path, tmp_path: Path) -> Iterator[Database]:
    """A state whose leases are rows alone, as those of PostgreSQL are."""
    with copied_state(empty_state, tmp_path / "state.db") as database:
        yield database


@pytest.fixture
def locking(renewing: Database) -> Iterator[Database]:
    """The same state, opened as control opens one in SQLite."""
    database = Database(str(renewing.engine.url), by_control=True)
    yield database
    database.close()


def expiry(database: Database) -> float:
    with database.read() as connection:
        return float(connection.execute(select(LEASES.c.expires_at)).scalar_one())


async def test_a_renewed_lease_is_another_s_once_it_has_run_out(renewing, clock) -> None:
    one, two = (HeldLease(renewing, clock, "loop", holder) for holder in ("one", "two"))
    assert await one.hold()
    assert not await two.hold()
    clock.seconds += LEASE_SECONDS
    assert await two.hold()
    assert not await one.hold()


async def test_a_renewed_lease_is_written_again_and_again(renewing, clock) -> None:
    lease = HeldLease(renewing, clock, "loop", "one")
    await lease.hold()
    first = expiry(renewing)
    clock.seconds += 2
    await lease.hold()
    assert expiry(renewing) == first + 2


async def test_a_locked_lease_is_written_once(locking, clock) -> None:
    lease = HeldLease(locking, clock, "loop", "one")
    assert await lease.hold()
    first = locking.commits.version()
    for _ in range(100):
        clock.seconds += 10
        assert await lease.hold()
    assert locking.commits.version() == first


async def test_a_locked_lease_is_nobody_else_s_even_when_its_row_has_run_out(
    locking, clock
) -> None:
    one, two = (HeldLease(locking, clock, "loop", holder) for holder in ("one", "two"))
    assert await one.hold()
    clock.seconds += 10 * LEASE_SECONDS
    assert not await two.hold()
    await one.let_go()
    assert await two.hold()
    assert not await one.hold()


async def test_a_lease_that_was_lost_is_not_locked(locking, renewing, clock) -> None:
    """Another, that knows nothing of locks, has the row, and keeps it until it has run out."""
    one = HeldLease(locking, clock, "loop", "one")
    two = HeldLease(renewing, clock, "loop", "two")
    assert await one.hold()
    clock.seconds += LEASE_SECONDS
    assert await two.hold()
    one.lose()
    assert not await one.hold()
    clock.seconds += LEASE_SECONDS
    assert await one.hold()


def test_a_killed_holder_leaves_its_lock_at_once(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; "
        "from sagehen.state.leases import LeaseLock; "
        "assert LeaseLock(Path(sys.argv[1])).take(); print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    lock = LeaseLock(tmp_path / "lock")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout.readline() == "held\n"
        taken_meanwhile = lock.take()
        killed.kill()
    assert (taken_meanwhile, lock.take()) == (False, True)


async def test_a_file_that_cannot_be_locked_leaves_renewing(locking, clock, caplog) -> None:
    locking.lease_lock("loop").mkdir()
    lease = HeldLease(locking, clock, "loop", "one")
    assert await lease.hold()
    first = expiry(locking)
    clock.seconds += 2
    assert await lease.hold()
    assert expiry(locking) == first + 2
    assert caplog.text.count("cannot be locked") == 1


def test_a_link_to_a_state_has_the_lock_of_the_state_itself(locking, tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere/linked.db"
    link.symlink_to(tmp_path / "state.db")
    linked = Database(f"sqlite:///{link}", by_control=True)
    assert linked.lease_lock("loop") == locking.lease_lock("loop")
    linked.close()


async def test_who_holds_it_is_known_while_the_lock_is_held(locking, clock) -> None:
    """The row was written once and has run out long since: the lock says that it still holds."""
    one, two = (HeldLease(locking, clock, "loop", holder) for holder in ("one", "two"))
    assert await one.hold()
    assert not await two.hold()
    assert two.other_holder() == "one"
    clock.seconds += 10 * LEASE_SECONDS
    assert not await two.hold()
    assert two.other_holder() == "one"
    assert one.other_holder() is None
    await one.let_go()
    assert await two.hold()
    assert two.other_holder() is None


async def test_a_row_that_has_run_out_names_nobody_without_a_lock(renewing, clock) -> None:
    one, two = (HeldLease(renewing, clock, "loop", holder) for holder in ("one", "two"))
    assert await one.hold()
    assert not await two.hold()
    assert two.other_holder() == "one"
    clock.seconds += LEASE_SECONDS
    assert two.other_holder() is None
