"""Carries out a plan, and writes the stack's record before and after each step.

If a run is killed, the next one continues from the record.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sagehen.apply.client import Aws, sagehen_error
from sagehen.apply.hidden import revealed
from sagehen.apply.plan import (
    Action,
    ActualStates,
    Removal,
    StackPlan,
    StackStep,
    actual_key,
    is_same,
    missing_from,
)
from sagehen.apply.resources import KINDS, ActualState, comparable
from sagehen.apply.stack import Journal, Phase, StackResource
from sagehen.apply.template.desired import Desired, Resolver
from sagehen.base.errors import AlreadyExists, Invalid, SagehenError, Unavailable

__all__ = [
    "RunInterrupted",
    "StackRun",
    "as_our_error",
    "perform",
    "poll",
    "read_actual",
    "settled",
    "shown_name",
    "wait_until_gone",
    "wait_until_ready",
]

_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 2.0
_SHARE_OF_WAIT = 0.1
"""a pause as a share of the wait so far, so also the most by which a wait is too long"""


class RunInterrupted(Exception):
    """The user asked to stop; the message names what is still under way."""


@dataclass
class StackRun:
    """The tools of one run."""

    aws: Aws
    journal: Journal
    stop: threading.Event
    say: Callable[[str], None]
    timeout_seconds: float
    """for one resource to become ready or deleted"""


def settled(desired: Desired, run: StackRun) -> ActualState | None:
    actual = poll(
        run,
        lambda: desired.kind.look(run.aws, desired.name, desired.properties),
        lambda state: state is None or state.status not in ("busy", "going"),
        f"{shown_name(desired)} is still changing",
    )
    return actual and desired.kind.with_name(run.aws, actual)


def wait_until_ready(desired: Desired, run: StackRun) -> ActualState:
    actual = settled(desired, run)
    if actual is None:
        raise Invalid(f"{shown_name(desired)} was deleted while it was being created. Apply again.")
    if actual.status == "failed":
        raise Invalid(f"{shown_name(desired)} failed: {actual.reason or 'no reason was given.'}")
    return actual


def wait_until_gone(desired: Desired, run: StackRun, only_if_going: bool = False) -> None:
    poll(
        run,
        lambda: desired.kind.look(run.aws, desired.name, desired.properties),
        lambda actual: actual is None or (only_if_going and actual.status != "going"),
        f"{shown_name(desired)} is still there",
    )


def poll(
    run: StackRun,
    look: Callable[[], ActualState | None],
    done: Callable[[ActualState | None], bool],
    otherwise: str,
) -> ActualState | None:
    """Polls until `done` accepts the state, also while the server is unavailable."""
    began = time.monotonic()
    while True:
        try:
            actual = look()
            if done(actual):
                return actual
            run.journal.beat()
            problem = ""
        except (ClientError, BotoCoreError, Unavailable) as error:
            if not isinstance(as_our_error(error), Unavailable):
                raise
            problem = f" ({error})"
        waited = time.monotonic() - began
        if waited > run.timeout_seconds:
            raise Unavailable(
                f"{otherwise} after {run.timeout_seconds:g} s{problem}. Run the same again to go "
                "on waiting."
            )
        if run.stop.wait(_pause_after(waited)):
            raise RunInterrupted(otherwise)


def _pause_after(waited: float) -> float:
    return min(max(_MIN_PAUSE_SECONDS, waited * _SHARE_OF_WAIT), _MAX_PAUSE_SECONDS)


def shown_name(desired: Desired) -> str:
    return f"{desired.type} {desired.logical_id} ({desired.name or 'unnamed'})"


def as_our_error(error: ClientError | BotoCoreError | SagehenError) -> SagehenError:
    return error if isinstance(error, SagehenError) else sagehen_error(error)


def read_actual(aws: Aws, desired: list[Desired]) -> ActualStates:
    states = {}
    for resource in desired:
        with _as_our_errors(resource.logical_id):
            actual = resource.kind.look(aws, resource.name, resource.properties)
        if actual is not None:
            states[actual_key(resource)] = actual
    return states


def perform(plan: StackPlan, resolver: Resolver | None, run: StackRun) -> None:
    """Carries out all steps, then all removals.

    Raises RunInterrupted if `work.stop` was set: the current step was finished, or the next run
    waits for it. Raises SagehenError if a step failed: earlier steps stay, and nothing is removed.
    """
    for step in plan.steps:
        assert resolver is not None
        desired = resolver.resolve(step.desired.logical_id)
        if step.action is Action.SAME:
            _fold(step, desired, run.journal)
            continue
        _check_stop(run)
        with _as_our_errors(desired.logical_id):
            record = _STEPS[step.action](step, desired, run)
        resolver.settle(record.logical_id, record.attributes)
    if resolver is not None:
        before = run.journal.content
        content = msgspec.structs.replace(before, outputs=resolver.kept_outputs(before.outputs))
        if content != run.journal.content:
            run.journal.write(content)
    for removal in plan.removals:
        _check_stop(run)
        with _as_our_errors(removal.record.logical_id):
            _remove(removal, run)


def _create(step: StackStep, desired: Desired, run: StackRun) -> StackResource:
    before = run.journal.content
    if desired.kind.name_property is None:
        # The server names the new resource; the old one's name does not apply.
        desired = msgspec.structs.replace(desired, name="")
    _set_aside_other(desired, run.journal)
    run.journal.keep(_record_of(desired, "creating"))
    if not step.takes_over:
        wait_until_gone(desired, run, only_if_going=True)
        run.say(f"Creating {shown_name(desired)}")
        try:
            name = desired.kind.create(run.aws, desired.name, desired.properties)
        except (ClientError, SagehenError) as error:
            if _made_nothing(as_our_error(error), desired, run):
                run.journal.write(before)
            raise
        if name is not None:
            attributes = {**desired.attributes, "Ref": name, "Arn": name}
            desired = msgspec.structs.replace(desired, name=name, attributes=attributes)
            run.journal.keep(_record_of(desired, "creating"))
    return _finish(step, desired, run)


def _made_nothing(refusal: SagehenError, desired: Desired, run: StackRun) -> bool:
    """Tells whether a refused create left nothing; a rule may exist without its targets."""
    if isinstance(refusal, AlreadyExists):
        return True
    if isinstance(refusal, Unavailable):
        return False
    return desired.kind.look(run.aws, desired.name, desired.properties) is None


def _finish(step: StackStep, desired: Desired, run: StackRun) -> StackResource:
    if step.action is Action.FINISH:
        run.say(f"Waiting for {shown_name(desired)}")
    actual = wait_until_ready(desired, run)
    record = _record_of(desired, "ready", actual)
    _set_aside_other(desired, run.journal)
    run.journal.keep(record)
    return record


def _update(step: StackStep, desired: Desired, run: StackRun) -> StackResource:
    assert step.old is not None
    _set_aside_other(desired, run.journal)
    run.journal.keep(msgspec.structs.replace(step.old, phase="updating"))
    actual = settled(desired, run)
    if actual is None or actual.status != "ready":
        raise Invalid(
            f"{shown_name(desired)} was deleted or failed before its update. Apply again."
        )
    run.say(f"Updating {shown_name(desired)}")
    old = revealed(step.old.properties, desired.properties)
    desired.kind.update(run.aws, actual, old, desired.properties)
    actual = wait_until_ready(desired, run)
    seen = {
        name: value for name, value in desired.properties.items() if name not in desired.kind.unseen
    }
    wrong = [
        difference.path
        for difference in missing_from(comparable(actual.properties), comparable(seen))
        if not desired.kind.is_fixed(difference.member)
    ]
    if wrong:
        raise Invalid(
            f"The update of {shown_name(desired)} failed; its previous configuration stays in "
            f"effect ({', '.join(wrong)}): {actual.reason or 'no reason was given.'}"
        )
    record = _record_of(desired, "ready", actual)
    run.journal.keep(record)
    return record


def _recreate(step: StackStep, desired: Desired, run: StackRun) -> StackResource:
    run.say(f"Deleting {shown_name(desired)}, which failed")
    desired.kind.delete(run.aws, desired.name)
    wait_until_gone(desired, run)
    return _create(step, desired, run)


_STEPS: dict[Action, Callable[[StackStep, Desired, StackRun], StackResource]] = {
    Action.CREATE: _create,
    Action.REPLACE: _create,
    Action.FINISH: _finish,
    Action.UPDATE: _update,
    Action.RECREATE: _recreate,
    Action.ADOPT: _finish,
}


def _fold(step: StackStep, desired: Desired, journal: Journal) -> None:
    """Records policies and dependencies, which only the stack knows."""
    assert step.old is not None
    record = msgspec.structs.replace(
        step.old, needs=desired.needs, deletion_policy=desired.deletion_policy
    )
    if journal.content.resources.get(record.logical_id) != record:
        _set_aside_other(desired, journal)
        journal.keep(record)


def _set_aside_other(desired: Desired, journal: Journal) -> None:
    """Makes any other resource that has this logical id a leftover."""
    current = journal.content.resources.get(desired.logical_id)
    if current is not None and not is_same(current, desired):
        journal.set_aside(current, retained=desired.update_replace_policy == "Retain")


def _remove(removal: Removal, run: StackRun) -> None:
    record = removal.record
    title = f"{record.type} {record.logical_id} ({record.name or 'unnamed'})"
    if removal.retained:
        run.say(f"Keeping {title}, as its policy says")
        run.journal.forget(record)
        return
    kind = KINDS.get(record.type)
    if kind is None:
        raise Invalid(f"{title} is of a type that this version of Sagehen does not know.")
    run.say(f"Deleting {title}")
    if kind.is_recorded_only:
        run.journal.forget(record)
        return
    actual = poll(
        run,
        lambda: kind.look(run.aws, record.name, record.properties),
        lambda state: state is None or state.status != "busy",
        f"{title} is still changing",
    )
    if actual is not None:
        actual = kind.with_name(run.aws, actual)
        reason = kind.delete(run.aws, actual.name) if actual.status != "going" else None
        if reason:
            run.say(f"[kept] {reason}")
        else:
            poll(
                run,
                lambda: kind.look(run.aws, actual.name, record.properties),
                lambda state: state is None,
                f"{title} is still there",
            )
    run.journal.forget(record)


def _record_of(desired: Desired, phase: Phase, actual: ActualState | None = None) -> StackResource:
    name = actual.name if actual else desired.name
    attributes = dict(desired.attributes)
    if actual is not None and actual.name != desired.name:
        attributes |= {"Ref": actual.name, "Arn": actual.name}
    return StackResource(
        logical_id=desired.logical_id,
        type=desired.type,
        name=name,
        properties=desired.properties,
        attributes=attributes | (actual.attributes if actual else {}),
        needs=desired.needs,
        deletion_policy=desired.deletion_policy,
        hidden=desired.hidden,
        phase=phase,
    )


def _check_stop(run: StackRun) -> None:
    if run.stop.is_set():
        raise RunInterrupted


@contextmanager
def _as_our_errors(logical_id: str) -> Iterator[None]:
    """Converts boto3's errors to ours and adds the logical id."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        converted = sagehen_error(error)
        raise type(converted)(f"{logical_id}: {converted}") from error
