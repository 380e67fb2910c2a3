"""One pass over the metric alarms: reads their datapoints, evaluates them, writes what changed.

What changed is written with its history, events, messages and calls of scaling policies in one
transaction, so that a kill at any time loses none and repeats none.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace
from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, OperationalError

from sagehen.base.errors import SagehenError
from sagehen.services.monitoring.alarms import store
from sagehen.services.monitoring.alarms.actions import AlarmActions, is_scaling_policy
from sagehen.services.monitoring.alarms.composite.cascade import cascade
from sagehen.services.monitoring.alarms.datapoints import (
    AlarmQueries,
    queries_of,
    read_datapoints,
)
from sagehen.services.monitoring.alarms.evaluation.evaluate import (
    LATE_SECONDS,
    Evaluation,
    evaluate,
)
from sagehen.services.monitoring.alarms.evaluation.reasons import Datapoint, period_of
from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord
from sagehen.services.monitoring.alarms.transitions import (
    NewState,
    change_state,
    invoke_policies,
)
from sagehen.state.database import Database
from sagehen.state.deadlocks import retry_deadlocks
from sagehen.state.leases import WriteCheck
from sagehen.wire.errors import AwsError

__all__ = ["EvaluationPass", "Seen", "minute_of", "seconds_to_next"]

log = logging.getLogger(__name__)

OFFSET_SECONDS = LATE_SECONDS + 1
"""after a minute's end, when it is evaluated"""
AT_ONCE = 50
"""alarms written in one transaction, to let other writers in"""
EVALUATION_ERROR = "EVALUATION_ERROR"


def minute_of(now: float, seconds: int = 60) -> int:
    """Returns the number of the minute, or of another period, whose evaluation is due."""
    return int((now - OFFSET_SECONDS) // seconds)


def seconds_to_next(now: float, seconds: int) -> float:
    """Returns the seconds until the next period is due."""
    return (minute_of(now, seconds) + 1) * seconds + OFFSET_SECONDS - now


class Seen(NamedTuple):
    """The alarms that one pass has evaluated."""

    alarms: int
    fine: frozenset[str]
    """alarms with a period under a minute"""


class _Step(NamedTuple):
    """A change of an alarm to write."""

    record: AlarmRecord
    evaluation: Evaluation
    evaluation_state: str | None


class EvaluationPass:
    """Takes passes, one at a time."""

    def __init__(self, database: Database, lease: WriteCheck, actions: AlarmActions) -> None:
        self._database = database
        self._lease = lease
        self._actions = actions
        self._queries: dict[str, AlarmQueries] = {}
        """by name, kept while the definition stays: hashing a metric's name is slow"""

    def run(self, names: Collection[str] | None, now: float) -> Seen:
        """Evaluates the alarms of `names`, or all.

        Raises:
            LeaseLost: another control has taken over; what this one had not written is not.
        """
        with self._database.read() as connection:
            if names is None:
                records = store.all_of_kind(connection, AlarmKind.METRIC)
            else:
                found = store.get_some(connection, names).values()
                records = [record for record in found if record.kind is AlarmKind.METRIC]
            datapoints = read_datapoints(
                connection, {record.name: self._queries_of(record) for record in records}, now
            )
        if names is None:
            self._forget(records)
        steps = [
            step
            for record in records
            if (step := _step_or_error(record, datapoints, now)) is not None
        ]
        for start in range(0, len(steps), AT_ONCE):
            self._write(steps[start : start + AT_ONCE], now)
        fine = frozenset(record.name for record in records if period_of(record.definition) < 60)
        return Seen(len(records), fine)

    def _queries_of(self, record: AlarmRecord) -> AlarmQueries:
        known = self._queries.get(record.name)
        if known is None or known.definition != record.definition:
            known = self._queries[record.name] = queries_of(record.definition)
        return known

    def _forget(self, records: Sequence[AlarmRecord]) -> None:
        names = {record.name for record in records}
        for name in self._queries.keys() - names:
            del self._queries[name]

    def _write(self, steps: Sequence[_Step], now: float) -> None:
        try:
            retry_deadlocks(partial(self._write_together, steps, now))
        except (SagehenError, OSError, OperationalError, InterfaceError):
            raise  # the state is away, or the lease is lost
        except Exception:
            if len(steps) == 1:
                extra = {"action": "evaluate_alarm", "alarm": steps[0].record.name}
                log.exception("An alarm's actions failed and are tried again.", extra=extra)
                return
            # One bad alarm must not keep the others from changing.
            for step in steps:
                self._write([step], now)

    def _write_together(self, steps: Sequence[_Step], now: float) -> None:
        with self._database.write() as connection:
            self._lease.check(connection, now)
            present = store.get_some(connection, [step.record.name for step in steps], lock=True)
            changed = []
            for step in steps:
                record = present.get(step.record.name)
                if record is not None and _is_as_seen(record, step.record):
                    new = self._perform(connection, step, now)
                    if new.state is not record.state:
                        changed.append(new)
            cascade(connection, changed, self._actions, now)
        for new in changed:
            extra = {"action": "alarm_state", "alarm": new.name, "to": new.state}
            extra |= {"from": present[new.name].state, "reason": new.reason}
            log.info("An alarm changed its state.", extra=extra)

    def _perform(self, connection: Connection, step: _Step, now: float) -> AlarmRecord:
        record = replace(step.record, evaluation_state=step.evaluation_state)
        state, values, reason, reason_data = step.evaluation
        if state is not None and state is not record.state:
            new_state = NewState(state, reason, reason_data, values)
            return change_state(connection, record, new_state, self._actions, now)
        if _policies_are_due(record, now):
            record = invoke_policies(connection, record, values, self._actions, now)
        store.put_state(connection, record)
        return record


def _step_or_error(
    record: AlarmRecord, datapoints: Callable[[str], list[Datapoint] | AwsError], now: float
) -> _Step | None:
    try:
        return _step(record, datapoints(record.name), now)
    except Exception:
        # One bad alarm must not keep the others from being evaluated.
        extra = {"action": "evaluate_alarm", "alarm": record.name}
        log.exception("The evaluation of an alarm failed.", extra=extra)
        return _error_step(record)


def _error_step(record: AlarmRecord) -> _Step | None:
    is_known = record.evaluation_state == EVALUATION_ERROR
    return None if is_known else _Step(record, Evaluation(None, ()), EVALUATION_ERROR)


def _step(record: AlarmRecord, datapoints: list[Datapoint] | AwsError, now: float) -> _Step | None:
    """Returns None if nothing changes."""
    if isinstance(datapoints, AwsError):
        step = _error_step(record)
        if step is not None:
            extra = {"alarm": record.name, "error": str(datapoints)[:200]}
            log.warning("An alarm cannot be evaluated.", extra={"action": "evaluate_alarm"} | extra)
        return step
    evaluation = evaluate(record.definition, datapoints, record.state, now)
    is_same = evaluation.state in (None, record.state) and record.evaluation_state is None
    if is_same and not _policies_are_due(record, now):
        return None
    return _Step(record, evaluation, None)


def _policies_are_due(record: AlarmRecord, now: float) -> bool:
    """Scaling policies are invoked each minute while the state lasts, other actions once."""
    if not record.actions_enabled or not any(map(is_scaling_policy, record.actions(record.state))):
        return False
    last = record.policies_invoked_at
    return last is None or minute_of(last) != minute_of(now)


def _is_as_seen(record: AlarmRecord, seen: AlarmRecord) -> bool:
    """Tells whether nobody has put or set the alarm since."""
    return record == seen
