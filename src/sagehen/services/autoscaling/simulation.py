"""Replays a load through scaling policies: the same functions that decide in the server, by a
clock of its own.

Each tick the load is shared evenly by the running instances; that is the metric. Alarms look at the
last whole periods, as CloudWatch's do. New instances serve after `start_seconds`.
"""

import math

import msgspec

from sagehen.services.autoscaling.policies.decision import decide
from sagehen.services.autoscaling.policies.facts import (
    Breach,
    LastScaling,
    PolicyConfiguration,
    PolicyFacts,
    ScalingFacts,
)

__all__ = [
    "Moment",
    "SimulatedAlarm",
    "SimulatedPolicy",
    "Simulation",
    "SimulationResult",
    "simulate",
]

MINUTE = 60
"""seconds; the loads are given by the minute, and an alarm repeats its call each minute"""
BREACH_SECONDS = 90


class SimulatedAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm over the metric."""

    name: str
    comparison: str
    threshold: float
    period_seconds: int
    periods: int
    datapoints: int
    """of the periods that have to breach"""


class SimulatedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with the alarms that call it."""

    name: str
    configuration: PolicyConfiguration
    alarms: tuple[SimulatedAlarm, ...]


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """A load, the policies that follow it, and the bounds."""

    policies: tuple[SimulatedPolicy, ...]
    loads: tuple[float, ...]
    """by the minute"""
    minimum: int
    maximum: int
    initial: int
    start_seconds: float
    """from a new desired count until its instances serve"""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a minute, or a change within one."""

    seconds: int
    """since the start"""
    load: float
    metric: float
    """the load of each instance"""
    running: int
    desired: int
    event: str | None = None
    """what changed, and why"""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The course of a simulation, and its cost."""

    moments: tuple[Moment, ...]
    instance_seconds: float
    changes: int

    @property
    def minutes(self) -> tuple[Moment, ...]:
        return tuple(moment for moment in self.moments if moment.event is None)


def simulate(simulation: Simulation) -> SimulationResult:
    run = _Run(simulation)
    for second in range(0, len(simulation.loads) * MINUTE, run.tick):
        run.advance(second)
    return SimulationResult(
        moments=tuple(run.moments), instance_seconds=run.instance_seconds, changes=run.changes
    )


class _Run:
    """The state of a simulation; times are seconds since its start."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        periods = {
            alarm.period_seconds for policy in simulation.policies for alarm in policy.alarms
        }
        self.tick = math.gcd(*periods, MINUTE)
        self.moments: list[Moment] = []
        self.instance_seconds = 0.0
        self.changes = 0
        self._running = self._desired = simulation.initial
        self._before = simulation.initial
        self._base = simulation.initial
        self._starts_at: float | None = None
        self._last_out: LastScaling | None = None
        self._last_in: LastScaling | None = None
        self._metrics: list[float] = []
        """one for each tick"""
        self._called: dict[str, Breach] = {}
        """by policy: its alarm's last call"""
        self._calls: dict[str, int] = {}
        """by alarm: when it last called"""

    def advance(self, second: int) -> None:
        """Simulates one tick, and what the alarms do at its end."""
        load = self._simulation.loads[second // MINUTE]
        end = second + self.tick
        if self._starts_at is not None and self._starts_at <= second:
            self._end_change(self._starts_at)
        metric = load / max(self._running, 1)
        self._metrics.append(metric)
        self.instance_seconds += self.tick * max(self._running, self._desired)
        if end % MINUTE == 0:
            self._note(end, load, metric, None)
        for policy in self._simulation.policies:
            for alarm in policy.alarms:
                self._look(policy, alarm, end, load, metric)

    def _look(
        self, policy: SimulatedPolicy, alarm: SimulatedAlarm, now: int, load: float, metric: float
    ) -> None:
        every = alarm.period_seconds
        if now % min(every, MINUTE) or now - self._calls.get(alarm.name, -MINUTE) < MINUTE:
            return
        values = self._datapoints(alarm, every)
        breaching = sum(_breaches(alarm, value) for value in values)
        if len(values) < alarm.periods or breaching < alarm.datapoints:
            return
        self._calls[alarm.name] = now
        self._called[policy.name] = Breach(
            alarm_name=alarm.name,
            threshold=alarm.threshold,
            comparison=alarm.comparison,
            values=tuple(values),
            at=now,
        )
        self._decide(policy, now, load, metric)

    def _datapoints(self, alarm: SimulatedAlarm, every: int) -> list[float]:
        """Returns the averages of the last periods, newest first."""
        width = every // self.tick
        newest = self._metrics[-width * alarm.periods :]
        groups = [newest[start : start + width] for start in range(0, len(newest), width)]
        return [sum(group) / len(group) for group in reversed(groups)]

    def _decide(self, acting: SimulatedPolicy, now: int, load: float, metric: float) -> None:
        decision = decide(self._facts(acting, now))
        if decision.desired is None or decision.before is None:
            return
        self._before, self._base = self._desired, decision.before
        self._desired = decision.desired
        self.changes += 1
        text = f"{self._before} → {self._desired}, policy {decision.policy}: {decision.reason}"
        self._note(now, load, metric, text)
        adds = self._desired > self._before
        self._starts_at = now + (self._simulation.start_seconds if adds else 0)
        if self._starts_at <= now:
            self._end_change(now)

    def _facts(self, acting: SimulatedPolicy, now: int) -> ScalingFacts:
        return ScalingFacts(
            now=now,
            capacity=self._desired,
            minimum=self._simulation.minimum,
            maximum=self._simulation.maximum,
            acting=acting.name,
            policies=tuple(
                PolicyFacts(
                    name=policy.name,
                    configuration=policy.configuration,
                    breach=self._breach(policy.name, now),
                )
                for policy in self._simulation.policies
            ),
            not_scalable=None if self._starts_at is None else "Instances are being started.",
            last_out=self._last_out,
            last_in=self._last_in,
        )

    def _breach(self, policy: str, now: int) -> Breach | None:
        breach = self._called.get(policy)
        return breach if breach and now - breach.at < BREACH_SECONDS else None

    def _end_change(self, at: float) -> None:
        last = LastScaling(ended_at=at, before=self._base)
        if self._desired > self._before:
            self._last_out, self._last_in = last, None
        else:
            self._last_in = last
        self._running, self._starts_at = self._desired, None

    def _note(self, seconds: int, load: float, metric: float, event: str | None) -> None:
        moment = Moment(
            seconds=seconds,
            load=load,
            metric=metric,
            running=self._running,
            desired=self._desired,
            event=event,
        )
        self.moments.append(moment)


def _breaches(alarm: SimulatedAlarm, value: float) -> bool:
    if alarm.comparison == "GreaterThanThreshold":
        return value > alarm.threshold
    if alarm.comparison == "GreaterThanOrEqualToThreshold":
        return value >= alarm.threshold
    if alarm.comparison == "LessThanThreshold":
        return value < alarm.threshold
    return value <= alarm.threshold
