"""When alarms are evaluated."""

import pytest

from sagehen.services.monitoring.alarms import store
from sagehen.services.monitoring.alarms.evaluation_pass import OFFSET_SECONDS
from sagehen.services.monitoring.alarms.loop import AlarmLoop
from sagehen.state.leadership import Leadership
from support.fixtures.api_alarms import NOON, POLICY, TOPIC

MINUTE = NOON.timestamp()


class Seconds:
    """A clock for the loop, at a second after noon."""

    def __init__(self, alarms):
        self.alarms = alarms

    def now(self):
        return self.alarms.clock.seconds

    monotonic = now

    async def sleep(self, seconds):
        self.alarms.clock.seconds += seconds


class Loop(AlarmLoop):
    """With its passes: names and time."""

    passes: list[tuple[list[str] | None, float]]


@pytest.fixture
def loop(alarms, monkeypatch):
    loop = Loop(
        alarms.database,
        Seconds(alarms),
        Leadership(alarms.database, Seconds(alarms), "me"),
        alarms.actions,
        1000,
    )
    passes = loop.passes = []
    run = loop._pass.run

    def counted(names, now):
        passes.append((None if names is None else sorted(names), now - MINUTE))
        return run(names, now)

    monkeypatch.setattr(loop._pass, "run", counted)
    return loop


async def turn(alarms, loop, second):
    """Returns when the loop wants its next turn, in seconds after noon."""
    alarms.clock.seconds = MINUTE + second
    assert await loop._hold_lease()
    wait = await loop.step()
    return None if wait is None else alarms.clock.seconds + wait - MINUTE


async def test_alarms_are_evaluated_after_each_minute(alarms, loop):
    alarms.put()
    assert await turn(alarms, loop, 3) == OFFSET_SECONDS
    assert loop.passes == [(None, 3)]
    assert await turn(alarms, loop, 6.9) == pytest.approx(OFFSET_SECONDS)
    assert len(loop.passes) == 1
    assert await turn(alarms, loop, 7.2) == pytest.approx(60 + OFFSET_SECONDS)
    assert await turn(alarms, loop, 66) == pytest.approx(60 + OFFSET_SECONDS)
    assert await turn(alarms, loop, 68) == pytest.approx(120 + OFFSET_SECONDS)
    assert loop.passes[1:] == [(None, pytest.approx(7.2)), (None, 68)]


async def test_a_new_alarm_is_evaluated_at_once(alarms, loop):
    alarms.put("first")
    await turn(alarms, loop, 10)
    alarms.put_value(7)
    alarms.put("second")
    await turn(alarms, loop, 11)
    assert loop.passes[1:] == [(["second"], 11)]
    assert (alarms.state("first"), alarms.state("second")) == ("INSUFFICIENT_DATA", "ALARM")
    await turn(alarms, loop, 12)
    assert len(loop.passes) == 2


async def test_short_periods_are_evaluated_every_ten_seconds(alarms, loop):
    alarms.put("slow")
    alarms.put("fast", Period=10)
    assert await turn(alarms, loop, 10) == 10 + OFFSET_SECONDS
    assert await turn(alarms, loop, 17) == 20 + OFFSET_SECONDS
    await turn(alarms, loop, 18)
    await turn(alarms, loop, 28)
    await turn(alarms, loop, 67)
    assert loop.passes == [(None, 10), (["fast"], 17), (["fast"], 28), (None, 67)]
    alarms.DeleteAlarms(AlarmNames=["fast"])
    await turn(alarms, loop, 130)
    await turn(alarms, loop, 140)
    assert loop.passes[4:] == [(None, 130)]


async def test_one_that_stands_by_does_not_collect_names(alarms, loop):
    await turn(alarms, loop, 10)
    for number in range(3):
        alarms.put(f"a{number}")
        await loop.stand_by()
    assert loop._put == set()
    await turn(alarms, loop, 11)
    assert loop.passes[-1] == (None, 11)


async def test_without_alarms_there_is_nothing_to_do(alarms, loop):
    assert await turn(alarms, loop, 10) is None
    alarms.put()
    assert await turn(alarms, loop, 11) is not None
    assert loop.passes[-1] == (["a"], 11)


async def test_a_pass_that_fails_is_taken_again(alarms, loop, monkeypatch):
    alarms.put()
    run = loop._pass.run

    def fail(names, now):
        raise KeyError(names)

    monkeypatch.setattr(loop._pass, "run", fail)
    with pytest.raises(KeyError):
        await turn(alarms, loop, 10)
    monkeypatch.setattr(loop._pass, "run", run)
    alarms.put_value(7)
    await turn(alarms, loop, 11)
    assert alarms.state() == "ALARM"


async def test_policies_are_invoked_once_a_minute_whatever_happens(alarms, loop):
    alarms.put("a", Period=10, AlarmActions=[POLICY])
    alarms.put_value(9)
    for second in range(10, 370):
        if second % 10 == 0:
            at = {"StorageResolution": 1, "Timestamp": MINUTE + second - 10}
            alarms.put_value(9, **at)
        if second % 50 == 0:
            loop = AlarmLoop(
                alarms.database,
                Seconds(alarms),
                Leadership(alarms.database, Seconds(alarms), "me"),
                alarms.actions,
                1000,
            )
        await turn(alarms, loop, second)
    minutes = [int((now.timestamp() - MINUTE - OFFSET_SECONDS) // 60) for _, now in alarms.invoked]
    assert minutes == sorted(set(minutes)) == list(range(7))


async def test_a_suppressed_alarms_period_ends(alarms, loop):
    alarms.put("a", AlarmActions=[])
    alarms.put("s", AlarmActions=[])
    waits = {"ActionsSuppressorWaitPeriod": 20, "ActionsSuppressorExtensionPeriod": 0}
    alarms.put_composite("c", "ALARM(a)", ActionsSuppressor="s", **waits)
    await turn(alarms, loop, 10)
    alarms.set_state("a", "ALARM")
    for second in (11, 20, 29.9):
        await turn(alarms, loop, second)
        assert alarms.sent == []
    await turn(alarms, loop, 30)
    assert [one.topic_arn for one in alarms.sent] == [TOPIC]
    await turn(alarms, loop, 40)
    assert len(alarms.sent) == 1


async def test_a_restart_knows_the_periods(alarms, loop):
    alarms.put("a", AlarmActions=[], TreatMissingData="ignore")
    alarms.put("s", AlarmActions=[])
    waits = {"ActionsSuppressorWaitPeriod": 20, "ActionsSuppressorExtensionPeriod": 0}
    alarms.put_composite("c", "ALARM(a)", ActionsSuppressor="s", **waits)
    alarms.set_state("a", "ALARM")
    restarted = AlarmLoop(
        alarms.database,
        Seconds(alarms),
        Leadership(alarms.database, Seconds(alarms), "me"),
        alarms.actions,
        1000,
    )
    await turn(alarms, restarted, 15)
    await turn(alarms, restarted, 31)
    assert len(alarms.sent) == 1


async def test_a_period_is_not_forgotten_after_an_error(alarms, loop, monkeypatch):
    alarms.put("a", AlarmActions=[], TreatMissingData="ignore")
    alarms.put("s", AlarmActions=[])
    waits = {"ActionsSuppressorWaitPeriod": 20, "ActionsSuppressorExtensionPeriod": 0}
    alarms.put_composite("c", "ALARM(a)", ActionsSuppressor="s", **waits)
    alarms.set_state("a", "ALARM")

    def fail(connection):
        raise OSError("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "suppressed_by_period", fail)
        with pytest.raises(OSError, match="away"):
            await turn(alarms, loop, 15)
    await turn(alarms, loop, 31)
    assert len(alarms.sent) == 1


async def test_old_history_goes(alarms, loop):
    for number in range(3):
        alarms.put(f"a{number}")
        alarms.clock.seconds += 86_400
    alarms.clock.seconds += 27.5 * 86_400
    await loop._prune()
    assert [alarms.history(f"a{number}") for number in range(3)] == [
        [],
        ['Alarm "a1" created'],
        ['Alarm "a2" created'],
    ]
    short = AlarmLoop(
        alarms.database,
        Seconds(alarms),
        Leadership(alarms.database, Seconds(alarms), "me"),
        alarms.actions,
        1,
    )
    await short._prune()
    assert [len(alarms.history(f"a{number}")) for number in range(3)] == [0, 0, 1]
