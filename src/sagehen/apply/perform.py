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

from sagehen.apply.client import Aws, told
from sagehen.apply.hidden import revealed
from sagehen.apply.plan import (
    Action,
    Lives,
    Removal,
    StackPlan,
    StackStep,
    is_same,
    live_key,
    missing_from,
)
from sagehen.apply.resources import KINDS, ActualState, comparable
from sagehen.apply.stack import Journal, Phase, StackResource
from sagehen.apply.template.desired import Desired, Resolver
from sagehen.base.errors import AlreadyExists, Invalid, SagehenError, Unavailable

__all__ = [
    "RunInterrupted",
    "StackRun",
    "in_our_terms",
    "look_at",
    "perform",
    "poll",
    "settled",
    "wait_until_gone",
    "wait_until_ready",
    "what",
]

_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
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


def settled(desired: Desired, work: StackRun) -> ActualState | None:
    return poll(
        work,
        lambda: desired.kind.look(work.aws, desired.name, desired.properties),
        lambda live: live is None or live.status not in ("busy", "going"),
        f"{what(desired)} is still changing",
    )


def wait_until_ready(desired: Desired, work: StackRun) -> ActualState:
    live = settled(desired, work)
    if live is None:
        raise Invalid(f"{what(desired)} is gone again. Apply once more.")
    if live.status == "failed":
        raise Invalid(f"{what(desired)} failed: {live.reason or 'no reason was given.'}")
    return live


def wait_until_gone(desired: Desired, work: StackRun, only_if_going: bool = False) -> None:
    poll(
        work,
        lambda: desired.kind.look(work.aws, desired.name, desired.properties),
        lambda live: live is None or (only_if_going and live.status != "going"),
        f"{what(desired)} is still there",
    )


def poll(
    work: StackRun,
    look: Callable[[], ActualState | None],
    done: Callable[[ActualState | None], bool],
    otherwise: str,
) -> ActualState | None:
    """Polls until `done` accepts the state, also while the server is unavailable."""
    began = time.monotonic()
    while True:
        try:
            live = look()
            if done(live):
                return live
            work.journal.beat()
            trouble = ""
        except (ClientError, BotoCoreError, Unavailable) as error:
            if not isinstance(in_our_terms(error), Unavailable):
                raise
            trouble = f" ({error})"
        waited = time.monotonic() - began
        if waited > work.timeout_seconds:
            raise Unavailable(
                f"{otherwise} after {work.timeout_seconds:g} s{trouble}. Run the same again to go "
                "on waiting."
            )
        if work.stop.wait(_pause_after(waited)):
            raise RunInterrupted(otherwise)


def _pause_after(waited: float) -> float:
    return min(max(_SHORTEST_PAUSE_SECONDS, waited * _SHARE_OF_WAIT), _LONGEST_PAUSE_SECONDS)


def what(desired: Desired) -> str:
    return f"{desired.type} {desired.logical_id} ({desired.name or 'unnamed'})"


def in_our_terms(error: ClientError | BotoCoreError | SagehenError) -> SagehenError:
    return error if isinstance(error, SagehenError) else told(error)


def look_at(aws: Aws, desired: list[Desired]) -> Lives:
    found = {}
    for one in desired:
        with _ours(one.logical_id):
            live = one.kind.look(aws, one.name, one.properties)
        if live is not None:
            found[live_key(one)] = live
    return found


def perform(plan: StackPlan, resolver: Resolver | None, work: StackRun) -> None:
    """Carries out all steps, then all removals.

    Raises RunInterrupted if `work.stop` was set: the current step was finished, or the next run
    waits for it. Raises SagehenError if a step failed: earlier steps stay, and nothing is removed.
    """
    for step in plan.steps:
        assert resolver is not None
        desired = resolver.resolve(step.desired.logical_id)
        if step.action is Action.SAME:
            _fold(step, desired, work.journal)
            continue
        _check_stop(work)
        with _ours(desired.logical_id):
            kept = _STEPS[step.action](step, desired, work)
        resolver.settle(kept.logical_id, kept.attributes)
    if resolver is not None:
        before = work.journal.content
        content = msgspec.structs.replace(before, outputs=resolver.kept_outputs(before.outputs))
        if content != work.journal.content:
            work.journal.write(content)
    for removal in plan.removals:
        _check_stop(work)
        with _ours(removal.kept.logical_id):
            _remove(removal, work)


def _create(step: StackStep, desired: Desired, work: StackRun) -> StackResource:
    before = work.journal.content
    if desired.kind.name_property is None:
        # The server names the new resource; the old one's name does not apply.
        desired = msgspec.structs.replace(desired, name="")
    _make_room(desired, work.journal)
    work.journal.keep(_kept(desired, "creating"))
    if not step.takes_over:
        wait_until_gone(desired, work, only_if_going=True)
        work.say(f"Creating {what(desired)}")
        try:
            desired.kind.create(work.aws, desired.name, desired.properties)
        except (ClientError, SagehenError) as error:
            if _made_nothing(in_our_terms(error), desired, work):
                work.journal.write(before)
            raise
    return _finish(step, desired, work)


def _made_nothing(refusal: SagehenError, desired: Desired, work: StackRun) -> bool:
    """Tells whether a refused create left nothing; a rule may exist without its targets."""
    if isinstance(refusal, AlreadyExists):
        return True
    if isinstance(refusal, Unavailable):
        return False
    return desired.kind.look(work.aws, desired.name, desired.properties) is None


def _finish(step: StackStep, desired: Desired, work: StackRun) -> StackResource:
    if step.action is Action.FINISH:
        work.say(f"Waiting for {what(desired)}")
    live = wait_until_ready(desired, work)
    kept = _kept(desired, "ready", live)
    _make_room(desired, work.journal)
    work.journal.keep(kept)
    return kept


def _update(step: StackStep, desired: Desired, work: StackRun) -> StackResource:
    assert step.old is not None
    _make_room(desired, work.journal)
    work.journal.keep(msgspec.structs.replace(step.old, phase="updating"))
    live = settled(desired, work)
    if live is None or live.status != "ready":
        raise Invalid(f"{what(desired)} is gone or has failed meanwhile. Apply again.")
    work.say(f"Updating {what(desired)}")
    old = revealed(step.old.properties, desired.properties)
    desired.kind.update(work.aws, live, old, desired.properties)
    live = wait_until_ready(desired, work)
    seen = {k: one for k, one in desired.properties.items() if k not in desired.kind.unseen}
    wrong = [
        one.path
        for one in missing_from(comparable(live.properties), comparable(seen))
        if not desired.kind.is_fixed(one.member)
    ]
    if wrong:
        raise Invalid(
            f"The update of {what(desired)} failed, and it goes on as it was "
            f"({', '.join(wrong)}): {live.reason or 'no reason was given.'}"
        )
    kept = _kept(desired, "ready", live)
    work.journal.keep(kept)
    return kept


def _recreate(step: StackStep, desired: Desired, work: StackRun) -> StackResource:
    work.say(f"Deleting {what(desired)}, which failed")
    desired.kind.delete(work.aws, desired.name)
    wait_until_gone(desired, work)
    return _create(step, desired, work)


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
    kept = msgspec.structs.replace(
        step.old, needs=desired.needs, deletion_policy=desired.deletion_policy
    )
    if journal.content.resources.get(kept.logical_id) != kept:
        _make_room(desired, journal)
        journal.keep(kept)


def _make_room(desired: Desired, journal: Journal) -> None:
    """Makes any other resource that has this logical id a leftover."""
    current = journal.content.resources.get(desired.logical_id)
    if current is not None and not is_same(current, desired):
        journal.set_aside(current, retained=desired.update_replace_policy == "Retain")


def _remove(removal: Removal, work: StackRun) -> None:
    kept = removal.kept
    shown = f"{kept.type} {kept.logical_id} ({kept.name or 'unnamed'})"
    if removal.retained:
        work.say(f"Keeping {shown}, as its policy says")
        work.journal.forget(kept)
        return
    kind = KINDS.get(kept.type)
    if kind is None:
        raise Invalid(f"{shown} is of a type that this version of Sagehen does not know.")
    work.say(f"Deleting {shown}")
    live = poll(
        work,
        lambda: kind.look(work.aws, kept.name, kept.properties),
        lambda one: one is None or one.status != "busy",
        f"{shown} is still changing",
    )
    if live is not None:
        reason = kind.delete(work.aws, live.name) if live.status != "going" else None
        if reason:
            work.say(f"[kept] {reason}")
        else:
            poll(
                work,
                lambda: kind.look(work.aws, live.name, kept.properties),
                lambda one: one is None,
                f"{shown} is still there",
            )
    work.journal.forget(kept)


def _kept(desired: Desired, phase: Phase, live: ActualState | None = None) -> StackResource:
    name = live.name if live else desired.name
    attributes = dict(desired.attributes)
    if live is not None and live.name != desired.name:
        attributes |= {"Ref": live.name, "Arn": live.name}
    return StackResource(
        logical_id=desired.logical_id,
        type=desired.type,
        name=name,
        properties=desired.properties,
        attributes=attributes | (live.attributes if live else {}),
        needs=desired.needs,
        deletion_policy=desired.deletion_policy,
        hidden=desired.hidden,
        phase=phase,
    )


def _check_stop(work: StackRun) -> None:
    if work.stop.is_set():
        raise RunInterrupted


@contextmanager
def _ours(logical_id: str) -> Iterator[None]:
    """Converts boto3's errors to ours and adds the logical id."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        ours = told(error)
        raise type(ours)(f"{logical_id}: {ours}") from error
