"""Scheduled actions that run, by a clock that the test moves."""

from datetime import UTC, datetime

import pytest

from sagehen.frame.leased_loop import LONGEST_REST_SECONDS
from sagehen.services.autoscaling.loop import ENDED_ACTION_SECONDS, ScalingLoop
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

RESOURCE = "endpoint/e/variant/v"
HOUR = 3600.0


@pytest.fixture
def scaling(scaling):
    scaling.register()
    return scaling


def put(scaling, schedule="rate(1 hour)", bounds=(3, 5), name="a", **more):
    names = ("MinCapacity", "MaxCapacity")
    action = {key: bound for key, bound in zip(names, bounds, strict=True) if bound is not None}
    scaling.PutScheduledAction(
        ScheduledActionName=name, Schedule=schedule, ScalableTargetAction=action, **more
    )


def bounds(scaling):
    (target,) = scaling.DescribeScalableTargets()["ScalableTargets"]
    return target["MinCapacity"], target["MaxCapacity"]


def test_a_run_sets_the_bounds_and_the_count(scaling):
    put(scaling)
    assert scaling.look() == HOUR
    assert bounds(scaling) == (1, 10)
    scaling.pass_time(HOUR)
    assert scaling.look() == HOUR
    assert (bounds(scaling), scaling.fleet.counts) == ((3, 5), {RESOURCE: 3})
    change, run = scaling.activities()
    assert run["Description"] == "Setting min capacity to 3 and max capacity to 5"
    assert run["Cause"] == "scheduled action name a was triggered"
    assert run["StatusMessage"] == "Successfully set min capacity to 3 and max capacity to 5"
    assert (run["StatusCode"], "EndTime" in run) == ("Successful", False)
    assert change["Description"] == "Setting desired instance count to 3."
    assert change["Cause"] == "minimum capacity was set to 3"
    scaling.look()
    assert len(scaling.activities()) == 2


@pytest.mark.parametrize(
    ("given", "expected", "count"), [((None, 1), (1, 1), 1), ((2, None), (2, 10), 2)]
)
def test_a_run_may_set_one_bound(scaling, given, expected, count):
    put(scaling, bounds=given)
    scaling.pass_time(HOUR)
    scaling.look()
    assert (bounds(scaling), scaling.fleet.counts) == (expected, {RESOURCE: count})


def test_runs_of_one_moment_keep_their_order(scaling):
    put(scaling, bounds=(3, 5), name="b")
    scaling.pass_time(1)
    put(scaling, "at(2027-01-15T09:00:00)", bounds=(4, 6), name="a")
    scaling.pass_time(HOUR)
    scaling.look()
    causes = [one["Cause"].split()[3] for one in scaling.activities() if "name" in one["Cause"]]
    assert causes == ["a", "b"]
    assert bounds(scaling) == (4, 6)


def test_a_run_does_not_wait_for_a_cooldown(scaling):
    scaling.alarm(scaling.step()["PolicyARN"], 60)
    put(scaling, bounds=(7, 9))
    scaling.settle()
    scaling.pass_time(HOUR)
    scaling.look()
    assert scaling.fleet.counts == {RESOURCE: 7}


def test_missed_runs_are_not_caught_up(scaling):
    put(scaling)
    scaling.pass_time(5.5 * HOUR)
    assert scaling.look() == HOUR / 2
    assert len(scaling.activities()) == 2


def test_suspended_runs_are_passed_over(scaling):
    put(scaling)
    scaling.RegisterScalableTarget(SuspendedState={"ScheduledScalingSuspended": True})
    scaling.pass_time(HOUR)
    assert scaling.look() == HOUR
    scaling.RegisterScalableTarget(SuspendedState={"ScheduledScalingSuspended": False})
    scaling.look()
    assert (bounds(scaling), scaling.activities()) == ((1, 10), [])


def test_a_busy_resource_fails_the_change_and_follows_later(scaling):
    put(scaling)
    scaling.fleet.settled = False
    scaling.pass_time(HOUR)
    scaling.look()
    failed, run = scaling.activities()
    assert run["StatusCode"] == "Successful"
    assert (failed["StatusCode"], failed["StatusMessage"]) == (
        "Failed",
        f"Resource Id [{RESOURCE}] is not scalable. Reason: Endpoint e is Updating.",
    )
    scaling.settle()
    assert (bounds(scaling), scaling.fleet.counts) == ((3, 5), {RESOURCE: 3})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((11, None), "The minimum capacity 11 is greater than the maximum capacity 10."),
        ((0, 5), "The minimum value that the resource can accept is 1."),
    ],
)
def test_bounds_that_cannot_be_fail_the_run(scaling, given, reason):
    put(scaling, bounds=given)
    scaling.pass_time(HOUR)
    scaling.look()
    (run,) = scaling.activities()
    assert (run["StatusCode"], bounds(scaling)) == ("Failed", (1, 10))
    assert run["StatusMessage"].endswith(f"Reason: {reason}")


def test_an_action_that_has_ended_is_shown_for_a_day(scaling):
    put(scaling, "at(2027-01-15T08:30:00)")
    scaling.pass_time(HOUR)
    assert scaling.look() is None
    scaling.pass_time(ENDED_ACTION_SECONDS)
    scaling.look()
    assert len(scaling.DescribeScheduledActions()["ScheduledActions"]) == 1
    scaling.pass_time(1)
    scaling.look()
    assert scaling.DescribeScheduledActions()["ScheduledActions"] == []


def test_a_start_time_is_a_run_and_the_end_time_ends_them(scaling):
    now = scaling.clock.now()
    times = [datetime.fromtimestamp(now + seconds, UTC) for seconds in (60, HOUR + 60)]
    put(scaling, StartTime=times[0], EndTime=times[1])
    assert scaling.look() == 60
    scaling.pass_time(60)
    assert scaling.look() == HOUR
    scaling.pass_time(HOUR)
    assert scaling.look() is None


async def test_the_loop_runs_by_its_clock(scaling):
    put(scaling, "rate(1 minute)")
    running = ScalingLoop(
        scaling.database,
        scaling.autoscaler,
        scaling.clock,
        Leadership(scaling.database, scaling.clock, "here"),
    )
    assert await running.turn() == LONGEST_REST_SECONDS
    scaling.pass_time(59.5)
    assert await running.turn() == 0.5
    assert bounds(scaling) == (1, 10)
    scaling.pass_time(0.5)
    await running.turn()
    assert bounds(scaling) == (3, 5)


async def test_a_run_far_off_costs_no_turns_until_it_is_due(scaling):
    put(scaling, "rate(20 minutes)")
    # As in control: its leases are no rows that it writes again and again.
    database = Database(str(scaling.database.engine.url), by_control=True)
    leadership = Leadership(database, scaling.clock, "here")
    running = ScalingLoop(database, scaling.autoscaler, scaling.clock, leadership)
    steps: list[float] = []
    step = running._step

    def counted() -> float | None:
        steps.append(scaling.clock.now())
        return step()

    running._step = counted
    began = scaling.clock.now()
    rest = await running._turn_or_back_off()
    while bounds(scaling) == (1, 10) and scaling.clock.now() < began + HOUR:
        scaling.pass_time(rest)
        rest = await running._turn_or_back_off()
    await running._lease.let_go()
    database.close()
    assert steps[-1] == began + 20 * 60
    # One each half minute in any case, and some after the loop's own commits.
    assert len(steps) < 50


class _KilledError(Exception):
    pass


def test_a_kill_within_a_run_leaves_nothing_and_the_next_step_runs_it_once(scaling, monkeypatch):
    put(scaling)
    scaling.pass_time(HOUR)

    def killed(*_):
        raise _KilledError

    with monkeypatch.context() as patched:
        patched.setattr("sagehen.services.autoscaling.store.put_action", killed)
        with pytest.raises(_KilledError):
            scaling.look()
    assert (bounds(scaling), scaling.activities()) == ((1, 10), [])
    scaling.fleet.counts[RESOURCE], scaling.fleet.settled = 2, True
    scaling.look()
    scaling.look()
    assert bounds(scaling) == (3, 5)
    assert len(scaling.activities()) == 2
