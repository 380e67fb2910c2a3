"""What is remembered of the calls to variants that start on demand."""

from dataclasses import dataclass, field

import pytest

from sagehen.services.sagemaker.hosting.demand import (
    SILENT_SECONDS,
    WAITING_SECONDS,
    CallDemand,
    StartRequests,
    WaitingCalls,
)
from support.clock import HandClock, SteppedClock

IDLE = 300.0
NAME = ("e", "v")


@dataclass
class CallsInFlight:
    now: int = 0
    highest: int = 0


@dataclass
class Report:
    invocations: int = 0
    in_flight: CallsInFlight = field(default_factory=CallsInFlight)
    endpoint: str = "e"
    variant: str = "v"


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000_000.0)


@pytest.fixture
def demand(clock: HandClock) -> CallDemand:
    demand = CallDemand(clock, IDLE)
    demand.follow({NAME: None})
    return demand


def use(demand: CallDemand):
    return demand.of_endpoint("e", ["v"])["v"]


def wait(demand: CallDemand, calls: int = 1) -> None:
    demand.note_waiting(
        StartRequests(waiting=(WaitingCalls(endpoint="e", variant="v", calls=calls),))
    )


def test_a_variant_never_heard_of_was_last_used_when_control_began(demand, clock):
    began = clock.now()
    clock.seconds += 50
    assert (use(demand).last_used_at, use(demand).waiting) == (began, 0)


def test_calls_wait_until_their_gateway_says_no_more(demand, clock):
    hints = []
    demand.hint = lambda: hints.append(1)
    wait(demand, 3)
    assert (use(demand).waiting, len(hints)) == (3, 1)
    clock.seconds += WAITING_SECONDS - 0.1
    assert use(demand).waiting == 3
    clock.seconds += 0.1
    assert use(demand).waiting == 0


def test_new_invocations_are_use(demand, clock):
    demand.note_report("1", [Report(invocations=5)])
    clock.seconds += 10
    demand.note_report("1", [Report(invocations=5)])
    assert use(demand).last_used_at == clock.now() - 10
    demand.note_report("1", [Report(invocations=6)])
    assert use(demand).last_used_at == clock.now()


def test_a_long_request_is_use_while_its_gateway_lives(demand, clock):
    demand.note_report("1", [Report(1, CallsInFlight(1, 1))])
    clock.seconds += SILENT_SECONDS - 1
    assert use(demand).last_used_at == clock.now()
    clock.seconds += 2
    assert use(demand).last_used_at == clock.now() - SILENT_SECONDS - 1


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_step_of_the_clock_is_no_time_without_use(step):
    clock = SteppedClock(1_000_000.0)
    demand = CallDemand(clock, IDLE)
    demand.follow({NAME: None})
    clock.advance(100)
    demand.note_report("1", [Report(1, CallsInFlight(1, 1))])
    clock.jump(step)
    assert use(demand).last_used_at == clock.now()
    demand.note_report("1", [Report(1, CallsInFlight(0, 1))])
    clock.advance(20)
    clock.jump(step)
    assert use(demand).last_used_at == clock.now() - 20
    wait(demand)
    clock.jump(step)
    assert (use(demand).waiting, use(demand).since) == (1, clock.now() - 20)


def test_the_reports_of_containers_add_up(demand, clock):
    reports = [Report(4, CallsInFlight(0, 1)), Report(9, CallsInFlight(0, 2))]
    demand.note_report("1", reports)
    clock.seconds += 5
    demand.note_report("1", reports)
    assert use(demand).last_used_at == clock.now() - 5
    assert use(demand).peak == 3


def test_the_peak_is_that_of_all_gateways_within_the_idle_time(demand, clock):
    demand.note_report("1", [Report(1, CallsInFlight(0, 4))])
    demand.note_report("2", [Report(1, CallsInFlight(0, 3))])
    assert use(demand).peak == 7
    clock.seconds += IDLE / 2
    demand.note_report("1", [Report(2, CallsInFlight(0, 1))])
    assert use(demand).peak == 7
    clock.seconds += IDLE * 0.6
    demand.note_report("1", [Report(3, CallsInFlight(0, 1))])
    assert use(demand).peak == 1


def test_other_variants_are_not_remembered(demand):
    demand.note_report("1", [Report(1, CallsInFlight(0, 4), endpoint="other")])
    assert demand.of_endpoint("other", ["v"])["v"].peak == 0


def test_a_variant_that_is_gone_is_forgotten(demand):
    demand.note_report("1", [Report(1, CallsInFlight(0, 4))])
    demand.follow({})
    assert use(demand).peak == 0


def test_a_control_that_leads_again_does_not_take_variants_for_idle(demand, clock):
    """Gateways have reported to another one: a variant in use must not be stopped."""
    demand.note_report("1", [Report(invocations=1)])
    clock.seconds += 10 * IDLE
    assert use(demand).last_used_at < clock.now() - IDLE
    demand.begin()
    assert (use(demand).last_used_at, use(demand).since) == (clock.now(), clock.now())


def test_calls_that_wait_while_another_control_takes_over_go_on_waiting(demand, clock):
    hints = []
    demand.hint = lambda: hints.append(1)
    wait(demand, 3)
    demand.begin()
    assert use(demand).waiting == 3
    wait(demand, 3)
    assert len(hints) == 2, "told again, as the first pass may have been before"
