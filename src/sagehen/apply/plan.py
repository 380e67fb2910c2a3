"""Plans an update from the template, the stack's record and the actual state, without I/O.

Steps are in dependency order. Removals come last, so that nothing in service loses what it depends
on.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from sagehen.apply.hidden import is_equal, revealed
from sagehen.apply.resources import ActualState, comparable
from sagehen.apply.stack import StackContent, StackResource
from sagehen.apply.template.desired import Desired
from sagehen.base.errors import AlreadyExists, Invalid

__all__ = [
    "Action",
    "Difference",
    "Lives",
    "Removal",
    "StackPlan",
    "StackStep",
    "differences",
    "is_same",
    "live_key",
    "make_plan",
    "missing_from",
    "plan_removal",
]


class Difference(msgspec.Struct, frozen=True):
    path: str
    """e.g. `ProductionVariants[0].InstanceType`"""
    before: Any
    """None if absent"""
    after: Any

    @property
    def member(self) -> str:
        return self.path.partition(".")[0].partition("[")[0]


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            below = f"{path}.{name}" if path else str(name)
            yield from differences(before.get(name), after.get(name), below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif before != after:
        yield Difference(path, before, after)


def missing_from(there: Any, wanted: Any, path: str = "") -> Iterator[Difference]:
    """Yields where `there` differs from `wanted`; `there` may hold more, such as defaults."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else str(name)
            yield from missing_from(there.get(name), value, below)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for number, (one, other) in enumerate(zip(there, wanted, strict=True)):
            yield from missing_from(one, other, f"{path}[{number}]")
    elif there != wanted and not (there is None and wanted in ({}, [])):
        yield Difference(path, there, wanted)


Lives = Mapping[tuple[str, str], ActualState]
"""by type and name"""


class Action(StrEnum):
    SAME = "same"
    CREATE = "create"
    FINISH = "finish"
    """begun by an earlier run; only wait"""
    UPDATE = "update"
    REPLACE = "replace"
    """create another, remove the old one at the end"""
    RECREATE = "recreate"
    """failed: delete and create again"""
    ADOPT = "adopt"


class StackStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next action for one resource."""

    action: Action
    desired: Desired
    old: StackResource | None = None
    """recorded under this logical id"""
    changes: tuple[Difference, ...] = ()
    """from recorded to desired properties"""
    drift: tuple[Difference, ...] = ()
    """changes by others, from actual to desired properties"""
    note: str = ""
    takes_over: bool = False
    """the replacement exists already"""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A resource to remove after all steps."""

    kept: StackResource
    retained: bool
    """only drop it from the record"""


class StackPlan(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[StackStep, ...]
    removals: tuple[Removal, ...]

    @property
    def changes_anything(self) -> bool:
        return bool(self.removals) or any(one.action is not Action.SAME for one in self.steps)

    @property
    def is_to_be_written(self) -> bool:
        """Whether the record changes even if no resource does."""
        return any(
            (one.old.needs, one.old.deletion_policy)
            != (one.desired.needs, one.desired.deletion_policy)
            for one in self.steps
            if one.old is not None
        )

    @property
    def destroys(self) -> bool:
        lost = (Action.REPLACE, Action.RECREATE)
        return any(not one.retained for one in self.removals) or any(
            one.action in lost for one in self.steps
        )


def live_key(resource: Desired | StackResource) -> tuple[str, str]:
    """The key in Lives; an unnamed resource is known by its logical id."""
    return resource.type, resource.name or f"?{resource.logical_id}"


def make_plan(
    desired: Sequence[Desired], content: StackContent, lives: Lives, *, adopt: bool = False
) -> StackPlan:
    """Plans how to reach `desired`, which is in dependency order.

    Args:
        adopt: take over existing resources that equal the desired ones.

    Raises:
        AlreadyExists: a desired name is in use outside the stack.
        Invalid: a resource named by the template would need a replacement.
    """
    _check_names(desired)
    steps = tuple(_step(one, content, lives, adopt) for one in desired)
    return StackPlan(steps=steps, removals=tuple(_last_first(_removals(steps, content))))


def plan_removal(content: StackContent) -> StackPlan:
    return StackPlan(steps=(), removals=tuple(_last_first(_removals((), content))))


def _removals(steps: Sequence[StackStep], content: StackContent) -> list[Removal]:
    desired = {step.desired.logical_id: step.desired for step in steps}
    going_on = {id(step.old) for step in steps if step.action is not Action.REPLACE}
    # A step may have adopted it under another logical id.
    wanted = {(one.type, one.name) for one in desired.values() if one.name}
    removals = []
    for kept in (*content.resources.values(), *content.leftovers):
        if id(kept) in going_on or (kept.type, kept.name) in wanted:
            continue
        replaced_by = desired.get(kept.logical_id)
        if replaced_by is not None:
            retained = replaced_by.update_replace_policy == "Retain"
        else:
            retained = kept.deletion_policy != "Delete"
        if content.resources.get(kept.logical_id) is not kept:
            # An earlier run replaced it and recorded that update's policy.
            retained = kept.deletion_policy != "Delete"
        removals.append(Removal(kept=kept, retained=retained))
    return removals


def _step(desired: Desired, content: StackContent, lives: Lives, adopt: bool) -> StackStep:
    old = content.resources.get(desired.logical_id)
    same = old if old is not None and is_same(old, desired) else _taken_back(desired, content)
    live = lives.get(live_key(desired))
    if same is not None:
        return _step_of_same(desired, same, live)
    if live is not None:
        _refuse_foreign(desired, live, adopt, content)
    if old is None:
        action = Action.CREATE if live is None else Action.ADOPT
        return StackStep(action=action, desired=desired)
    changes = tuple(_changes(old, desired)) if old.type == desired.type else ()
    return StackStep(
        action=Action.REPLACE,
        desired=desired,
        old=old,
        changes=changes,
        note="" if old.type == desired.type else f"it was {old.type}",
        takes_over=live is not None,
    )


def _step_of_same(desired: Desired, kept: StackResource, live: ActualState | None) -> StackStep:
    changes = tuple(_changes(kept, desired))
    fixed = [one for one in changes if desired.kind.is_fixed(one.member)]
    if live is None or live.status == "going":
        note = "" if kept.phase == "creating" else "it is gone"
        return StackStep(action=Action.CREATE, desired=desired, old=kept, note=note)
    if live.status == "failed":
        note = f"it failed: {live.reason}"
        return StackStep(
            action=Action.RECREATE, desired=desired, old=kept, changes=changes, note=note
        )
    if fixed:
        _refuse_replacement(desired, fixed)
    drift = tuple(_drift(desired, live))
    if kept.phase == "creating" and any(desired.kind.is_fixed(one.member) for one in drift):
        # A fixed property differs, so this stack did not make the resource.
        _refuse_foreign(desired, live, adopt=False, content=None)
    mended = [one for one in drift if not desired.kind.is_fixed(one.member)]
    if changes or mended:
        action = Action.UPDATE
    else:
        settled = kept.phase == "ready" and live.status == "ready"
        action = Action.SAME if settled else Action.FINISH
    shown = {one.path for one in changes}
    return StackStep(
        action=action,
        desired=desired,
        old=kept,
        changes=changes,
        drift=tuple(one for one in drift if one.path not in shown),
    )


def is_same(kept: StackResource, desired: Desired) -> bool:
    """Tells whether both are the same resource, perhaps with other properties."""
    if kept.type != desired.type:
        return False
    if desired.kind.name_property is None:
        identity = desired.kind.identity
        return is_equal(identity(kept.properties), identity(desired.properties))
    return kept.name == desired.name


def _taken_back(desired: Desired, content: StackContent) -> StackResource | None:
    found = [one for one in content.leftovers if is_same(one, desired)]
    return found[-1] if found else None


def _changes(kept: StackResource, desired: Desired) -> list[Difference]:
    before = revealed(kept.properties, desired.properties)
    return list(differences(comparable(before), comparable(desired.properties)))


def _drift(desired: Desired, live: ActualState) -> list[Difference]:
    # The live resource was found by its name, which not every API returns.
    unseen = {*desired.kind.unseen, desired.kind.name_property}
    seen = {name: value for name, value in desired.properties.items() if name not in unseen}
    return list(missing_from(comparable(live.properties), comparable(seen)))


def _refuse_foreign(
    desired: Desired, live: ActualState, adopt: bool, content: StackContent | None
) -> None:
    """Raises AlreadyExists unless the resource may be adopted and matches the template."""
    what = f"Resource of type '{desired.type}' with identifier '{live.name}' already exists"
    if not adopt:
        resources = content.resources.values() if content else ()
        owner = next((one for one in resources if (one.type, one.name) == live_key(desired)), None)
        whose = f"is the stack's {owner.logical_id}" if owner else "is not the stack's"
        raise AlreadyExists(
            f"{what}, and {whose}. Choose another name, or take it over as {desired.logical_id} "
            "with --adopt."
        )
    drift = _drift(desired, live)
    if drift:
        paths = ", ".join(one.path for one in drift)
        raise AlreadyExists(
            f"{what}, and cannot be adopted as {desired.logical_id}: it is not as the template "
            f"has it ({paths})."
        )


def _refuse_replacement(desired: Desired, fixed: Sequence[Difference]) -> None:
    paths = ", ".join(dict.fromkeys(one.member for one in fixed))
    raise Invalid(
        "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
        f"Rename {desired.name} and update the stack again. ({desired.logical_id}: {paths} cannot "
        "be changed in place.)"
    )


def _check_names(desired: Sequence[Desired]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for one in desired:
        # SageMaker's names are case-insensitive.
        key = (one.type, one.name.lower())
        if one.name and key in seen:
            raise Invalid(
                f"{seen[key]} and {one.logical_id} have the same name, {one.name} ({one.type})."
            )
        seen[key] = one.logical_id


def _last_first(removals: Sequence[Removal]) -> list[Removal]:
    """Puts each removal before its dependencies."""
    by_id: dict[str, list[Removal]] = {}
    for one in removals:
        by_id.setdefault(one.kept.logical_id, []).append(one)
    graph = {
        name: [need for one in group for need in one.kept.needs if need in by_id and need != name]
        for name, group in by_id.items()
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError:
        # Two template versions can have opposite dependencies.
        order = list(by_id)
    return [one for name in reversed(order) for one in by_id[name]]
