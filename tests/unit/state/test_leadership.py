"""Leadership of one control of several, in PostgreSQL and in SQLite."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import StateError
from sagehen.state import leader_row
from sagehen.state import leadership as module
from sagehen.state.compatibility import require_revision
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership
from sagehen.state.leases import LeaseLost
from support.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1000.0)


@pytest.fixture
def url(postgres: Database) -> str:
    with postgres.write() as connection:
        connection.execute(text("DELETE FROM leases"))
    return postgres.engine.url.render_as_string(hide_password=False)


@pytest.fixture
def databases(url: str) -> Iterator[list[Database]]:
    """Those of two controls."""
    made = [Database(url, by_control=True) for _ in range(2)]
    yield made
    for database in made:
        database.close()


@pytest.fixture
def two(databases, clock) -> Iterator[list[Leadership]]:
    made = [
        Leadership(database, clock, name) for database, name in zip(databases, "ab", strict=True)
    ]
    yield made
    for leadership in made:
        leadership._disconnect()


def expire(database: Database) -> None:
    """Lets as much time of the database pass as a lease has."""
    with database.write() as connection:
        connection.execute(text("UPDATE leases SET expires_at = expires_at - 60"))


def row(database: Database) -> tuple[str, int]:
    with database.read() as connection:
        look = leader_row.look_at(connection)
    assert look is not None
    return look.holder, look.epoch


def check(leadership: Leadership) -> None:
    with leadership._database.write() as connection:
        leadership.check(connection)


async def test_one_leads_and_the_other_knows(two) -> None:
    first, second = two
    assert first.epoch is None
    await first.look()
    await second.look()
    assert (first.epoch, first.leader) == (1, None)
    assert (second.epoch, second.leader) == (None, "a")
    check(first)
    with pytest.raises(LeaseLost):
        check(second)


async def test_a_lease_that_has_expired_is_taken_with_the_next_epoch(two, databases) -> None:
    first, second = two
    await first.look()
    await second.look()
    expire(databases[1])
    await second.look()
    assert second.epoch == 2
    with pytest.raises(LeaseLost):
        check(first)
    assert first.epoch is None
    await first.look()
    assert (first.epoch, first.leader) == (None, "b")


async def test_the_machines_clocks_decide_nothing_but_the_own_right(two, databases, clock) -> None:
    first, second = two
    await first.look()
    clock.seconds += 1e6
    assert first.epoch is None  # It may not be the leader any more; only the database knows.
    await second.look()
    assert second.epoch is None
    await first.look()
    assert first.epoch == 1


async def test_it_leads_on_if_nobody_took_its_expired_lease(two, databases) -> None:
    first, second = two
    await first.look()
    expire(databases[0])
    check(first)
    await first.look()
    await second.look()
    assert (first.epoch, second.epoch) == (1, None)


async def test_a_restarted_control_leads_again_at_once_but_only_at_its_start(
    databases, clock
) -> None:
    before, after = (Leadership(database, clock, "a") for database in databases)
    await before.look()
    await after.look()
    assert after.epoch == 2
    await before.look()
    assert before.epoch is None
    await before.look()
    assert (before.epoch, after.epoch) == (None, 2)
    for leadership in (before, after):
        leadership._disconnect()


async def test_leadership_that_was_given_up_is_free_at_once(two, databases) -> None:
    first, second = two
    await first.look()
    await second.look()
    await first.let_go()
    assert row(databases[1]) == ("", 1)
    await second.look()
    assert (first.epoch, second.epoch) == (None, 2)


async def test_writes_of_a_leader_do_not_wait_for_each_other_or_for_a_renewal(two) -> None:
    first, _ = two
    await first.look()
    with first._database.write() as one, first._database.write() as other:
        first.check(one)
        first.check(other)
        await first.look()
        assert first.is_leader


async def test_a_take_over_waits_for_a_write_of_the_old_leader(two, databases, monkeypatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_SECONDS", 60)
    first, second = two
    await first.look()
    await second.look()
    expire(databases[1])
    order = []
    with databases[0].write() as connection:
        first.check(connection)
        taking = asyncio.create_task(second.look())
        await is_blocked(databases[1])
        order.append("written")
    await taking
    order.append("taken")
    assert (second.epoch, order) == (2, ["written", "taken"])


async def test_a_leader_that_hangs_in_a_transaction_loses_its_sessions(
    two, databases, caplog
) -> None:
    """As one does that is stopped by a signal, or whose machine is gone: nobody ends its
    connection."""
    first, second = two
    await first.look()
    await second.look()
    expire(databases[1])
    with databases[0].engine.connect() as connection:
        first.check(connection)
        connection.execute(text("SELECT 1 FROM alembic_version FOR UPDATE"))
        await second.look()
        assert second.epoch == 2
        with pytest.raises(OperationalError):
            connection.execute(text("SELECT 1"))
    assert "sessions of the last leader were ended" in caplog.text
    with pytest.raises(LeaseLost):
        check(first)


async def test_of_many_that_take_over_one_leads(url, clock) -> None:
    databases = [Database(url, by_control=True) for _ in range(6)]
    controls = [Leadership(one, clock, str(n)) for n, one in enumerate(databases)]
    await asyncio.gather(*(one.look() for one in controls))
    for epoch in range(1, 6):
        assert [one.epoch for one in controls if one.epoch] == [epoch]
        expire(databases[0])
        for leader in [one for one in controls if one.epoch]:
            leader._valid_until = 0.0
        others = [one for one in controls if one._epoch is None]
        await asyncio.gather(*(one.look() for one in others))
        await asyncio.gather(*(one.look() for one in controls))
    for control, database in zip(controls, databases, strict=True):
        control._disconnect()
        database.close()


async def test_a_loop_begins_anew_with_each_epoch(two, databases) -> None:
    first, second = two
    await first.look()
    lease = first.lease("loop")
    assert await lease.hold()
    assert (lease.term, lease.is_ours) == (1, True)
    expire(databases[1])
    await second.look()
    expire(databases[1])
    assert not lease.is_ours or first.epoch == 1
    await first.look()
    assert first.epoch == 3
    assert not lease.is_ours, "what was planned in epoch 1 is not written in epoch 3"
    with databases[0].write() as connection, pytest.raises(LeaseLost):
        lease.check(connection)
    assert await lease.hold()
    with databases[0].write() as connection:
        lease.check(connection)


async def test_who_leads_is_told_of_each_change(two, databases) -> None:
    first, second = two
    told = []
    first.on_change(lambda: told.append(first.epoch))
    await first.look()
    expire(databases[1])
    await second.look()
    await first.look()
    await first.look()
    assert told == [1, None]


async def test_while_nobody_knows_who_leads_a_loop_waits(two, databases) -> None:
    first, _ = two
    lease = first.lease("loop")
    holding = asyncio.create_task(lease.hold())
    await asyncio.sleep(0)
    assert not holding.done()
    await first.look()
    assert await holding


async def test_looks_see_the_commits_of_others_and_not_renewals(two, databases) -> None:
    first, second = two
    await first.look()
    await second.look()
    seen = []
    databases[0].commits.on_change(lambda: seen.append("a"))
    databases[1].commits.on_change(lambda: seen.append("b"))

    async def looks() -> list[str]:
        seen.clear()
        await first.look()
        await second.look()
        return list(seen)

    await looks()
    assert [await looks() for _ in range(3)] == [["b"]] * 3  # the leader's renewals
    await first.look()
    seen.clear()
    with databases[1].write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
        await first.look()
        assert seen == []
    await first.look()
    assert seen == ["a"]


async def test_an_idle_leader_asks_one_statement_a_look(two, databases) -> None:
    from sqlalchemy import event

    first, second = two
    await first.look()
    await second.look()
    counts = []
    for database in databases:
        statements: list[str] = []
        event.listen(
            database._apart,
            "before_cursor_execute",
            lambda *given, kept=statements: kept.append(given[2]),
        )
        counts.append(statements)
    for _ in range(5):
        await first.look()
        await second.look()
    assert [len(statements) for statements in counts] == [5, 5]


async def test_a_renewal_waits_for_no_other_work(two) -> None:
    """All threads may be busy, or wait for a lock that some hung process has."""
    first, _ = two
    await first.look()
    gate = threading.Event()
    blocked = [asyncio.create_task(asyncio.to_thread(gate.wait)) for _ in range(100)]
    try:
        async with asyncio.timeout(60):
            await first.look()
    finally:
        gate.set()
        await asyncio.gather(*blocked)
    assert first.is_leader


async def test_while_the_state_is_away_nobody_leads_and_then_the_same(
    two, clock, monkeypatch, caplog
) -> None:
    first, _ = two
    await first._look_or_back_off()
    is_away = True
    ask = first._ask

    def ask_or_fail(work):
        if is_away:
            raise OperationalError("SELECT", {}, Exception("away"))
        return ask(work)

    monkeypatch.setattr(first, "_ask", ask_or_fail)
    await first._look_or_back_off()
    assert first.epoch == 1, "the lease has not expired"
    clock.seconds += module.LEASE_SECONDS
    for _ in range(3):
        await first._look_or_back_off()
    lease = first.lease("loop")
    holding = asyncio.create_task(lease.hold())
    await asyncio.sleep(0)
    assert (first.epoch, holding.done()) == (None, False)
    assert caplog.text.count("cannot be looked at") == 1
    is_away = False
    await first._look_or_back_off()
    assert await holding
    assert first.epoch == 1


async def test_in_sqlite_each_loop_has_its_own_lease(database: Database, clock) -> None:
    one, two = (Leadership(database, clock, holder) for holder in "ab")
    assert (one.epoch, two.epoch) == (1, 1)
    assert await one.lease("loop").hold()
    assert not await two.lease("loop").hold()
    assert await two.lease("other").hold()
    async with asyncio.timeout(60):
        await one.run()


async def is_blocked(database: Database) -> None:
    """Waits until some session waits for a lock."""
    query = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    async with asyncio.timeout(60):
        while True:
            with database.engine.connect() as connection:
                if connection.scalar(query):
                    return
            await asyncio.sleep(0.01)


async def test_a_control_of_an_old_version_leads_no_more(two, url):
    first, _ = two
    await first.look()
    assert first.is_leader
    database = Database(url)
    try:
        with database.write() as connection:
            require_revision(connection, "9998")
        with pytest.raises(StateError, match="Upgrade this server, too"):
            await first.look()
        assert not first.is_leader
        with pytest.raises(StateError, match="Upgrade this server, too"):
            await first.run()
    finally:
        with database.write() as connection:
            connection.execute(text("DELETE FROM compatibility"))
        database.close()
