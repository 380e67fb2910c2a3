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
    "ActualStates",
    "Difference",
    "Removal",
    "StackPlan",
    "StackStep",
    "actual_key",
    "differences",
    "is_same",
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
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif before != after:
        yield Difference(path, before, after)


def missing_from(actual: Any, desired: Any, path: str = "") -> Iterator[Difference]:
    """Yields where `actual` differs from `desired`; `actual` may hold more, such as defaults."""
    if isinstance(desired, dict) and isinstance(actual, dict):
        for name, value in desired.items():
            below = f"{path}.{name}" if path else str(name)
            yield from missing_from(actual.get(name), value, below)
    elif isinstance(desired, list) and isinstance(actual, list) and len(desired) == len(actual):
        for number, (old, new) in enumerate(zip(actual, desired, strict=True)):
            yield from missing_from(old, new, f"{path}[{number}]")
    elif actual != desired and not (actual is None and desired in ({}, [])):
        yield Difference(path, actual, desired)


ActualStates = Mapping[tuple[str, str], ActualState]
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

    record: StackResource
    retained: bool
    """only drop it from the record"""


class StackPlan(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[StackStep, ...]
    removals: tuple[Removal, ...]

    @property
    def changes_anything(self) -> bool:
        return bool(self.removals) or any(step.action is not Action.SAME for step in self.steps)

    @property
    def is_to_be_written(self) -> bool:
        """Whether the record changes even if no resource does."""
        return any(
            (step.old.needs, step.old.deletion_policy)
            != (step.desired.needs, step.desired.deletion_policy)
            for step in self.steps
            if step.old is not None
        )

    @property
    def destroys(self) -> bool:
        lost = (Action.REPLACE, Action.RECREATE)
        return any(not removal.retained for removal in self.removals) or any(
            step.action in lost for step in self.steps
        )


def actual_key(resource: Desired | StackResource) -> tuple[str, str]:
    """The key in Lives; an unnamed resource is known by its logical id."""
    return resource.type, resource.name or f"?{resource.logical_id}"


def make_plan(
    desired: Sequence[Desired], content: StackContent, states: ActualStates, *, adopt: bool = False
) -> StackPlan:
    """Plans how to reach `desired`, which is in dependency order.

    Args:
        adopt: take over existing resources that equal the desired ones.

    Raises:
        AlreadyExists: a desired name is in use outside the stack.
        Invalid: a resource named by the template would need a replacement.
    """
    _check_names(desired)
    steps = tuple(_step(resource, content, states, adopt) for resource in desired)
    return StackPlan(steps=steps, removals=tuple(_last_first(_removals(steps, content))))


def plan_removal(content: StackContent) -> StackPlan:
    return StackPlan(steps=(), removals=tuple(_last_first(_removals((), content))))


def _removals(steps: Sequence[StackStep], content: StackContent) -> list[Removal]:
    desired = {step.desired.logical_id: step.desired for step in steps}
    going_on = {id(step.old) for step in steps if step.action is not Action.REPLACE}
    # A step may have adopted it under another logical id.
    desired_keys = {
        (resource.type, resource.name) for resource in desired.values() if resource.name
    }
    removals = []
    for record in (*content.resources.values(), *content.leftovers):
        if id(record) in going_on or (record.type, record.name) in desired_keys:
            continue
        replaced_by = desired.get(record.logical_id)
        if replaced_by is not None:
            retained = replaced_by.update_replace_policy == "Retain"
        else:
            retained = record.deletion_policy != "Delete"
        if content.resources.get(record.logical_id) is not record:
            # An earlier run replaced it and recorded that update's policy.
            retained = record.deletion_policy != "Delete"
        removals.append(Removal(record=record, retained=retained))
    return removals


def _step(desired: Desired, content: StackContent, states: ActualStates, adopt: bool) -> StackStep:
    old = content.resources.get(desired.logical_id)
    record = old if old is not None and is_same(old, desired) else _taken_back(desired, content)
    actual = states.get(actual_key(desired))
    if record is not None:
        return _step_of_same(desired, record, actual)
    if desired.kind.is_recorded_only:
        actual = None
    if actual is not None:
        _refuse_foreign(desired, actual, adopt, content)
    if old is None:
        action = Action.CREATE if actual is None else Action.ADOPT
        return StackStep(action=action, desired=desired)
    changes = tuple(_changes(old, desired)) if old.type == desired.type else ()
    return StackStep(
        action=Action.REPLACE,
        desired=desired,
        old=old,
        changes=changes,
        note="" if old.type == desired.type else f"it was {old.type}",
        takes_over=actual is not None,
    )


def _step_of_same(desired: Desired, record: StackResource, actual: ActualState | None) -> StackStep:
    changes = tuple(_changes(record, desired))
    fixed = [change for change in changes if desired.kind.is_fixed(change.member)]
    if actual is None or actual.status == "going":
        note = "" if record.phase == "creating" else "it is gone"
        return StackStep(action=Action.CREATE, desired=desired, old=record, note=note)
    if actual.status == "failed":
        note = f"it failed: {actual.reason}"
        return StackStep(
            action=Action.RECREATE, desired=desired, old=record, changes=changes, note=note
        )
    if fixed:
        _refuse_replacement(desired, fixed)
    drift = tuple(_drift(desired, actual))
    if record.phase == "creating" and any(desired.kind.is_fixed(change.member) for change in drift):
        # A fixed property differs, so this stack did not make the resource.
        _refuse_foreign(desired, actual, adopt=False, content=None)
    mended = [change for change in drift if not desired.kind.is_fixed(change.member)]
    if changes or mended:
        action = Action.UPDATE
    else:
        settled = record.phase == "ready" and actual.status == "ready"
        action = Action.SAME if settled else Action.FINISH
    shown = {change.path for change in changes}
    return StackStep(
        action=action,
        desired=desired,
        old=record,
        changes=changes,
        drift=tuple(change for change in drift if change.path not in shown),
    )


def is_same(record: StackResource, desired: Desired) -> bool:
    """Tells whether both are the same resource, perhaps with other properties."""
    if record.type != desired.type:
        return False
    if desired.kind.name_property is None:
        identity = desired.kind.identity
        return is_equal(identity(record.properties), identity(desired.properties))
    return record.name == desired.name


def _taken_back(desired: Desired, content: StackContent) -> StackResource | None:
    matches = [leftover for leftover in content.leftovers if is_same(leftover, desired)]
    return matches[-1] if matches else None


def _changes(record: StackResource, desired: Desired) -> list[Difference]:
    before = revealed(record.properties, desired.properties)
    return list(differences(comparable(before), comparable(desired.properties)))


def _drift(desired: Desired, actual: ActualState) -> list[Difference]:
    # The live resource was found by its name, which not every API returns.
    unseen = {*desired.kind.unseen, desired.kind.name_property}
    seen = {name: value for name, value in desired.properties.items() if name not in unseen}
    return list(missing_from(comparable(actual.properties), comparable(seen)))


def _refuse_foreign(
    desired: Desired, actual: ActualState, adopt: bool, content: StackContent | None
) -> None:
    """Raises AlreadyExists unless the resource may be adopted and matches the template."""
    name = actual.name or "unknown"
    conflict = f"Resource of type '{desired.type}' with identifier '{name}' already exists"
    if not adopt:
        resources = content.resources.values() if content else ()
        owner = next(
            (
                resource
                for resource in resources
                if (resource.type, resource.name) == actual_key(desired)
            ),
            None,
        )
        ownership = f"is the stack's {owner.logical_id}" if owner else "is not the stack's"
        raise AlreadyExists(
            f"{conflict}, and {ownership}. Choose another name, or take it over as "
            f"{desired.logical_id} with --adopt."
        )
    drift = _drift(desired, actual)
    if drift:
        paths = ", ".join(difference.path for difference in drift)
        raise AlreadyExists(
            f"{conflict}, and cannot be adopted as {desired.logical_id}: it is not as the template "
            f"has it ({paths})."
        )


def _refuse_replacement(desired: Desired, fixed: Sequence[Difference]) -> None:
    paths = ", ".join(dict.fromkeys(change.member for change in fixed))
    raise Invalid(
        "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
        f"Rename {desired.name} and update the stack again. ({desired.logical_id}: {paths} cannot "
        "be changed in place.)"
    )


def _check_names(desired: Sequence[Desired]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for resource in desired:
        # SageMaker's names are case-insensitive.
        key = (resource.type, resource.name.lower())
        if resource.name and key in seen:
            raise Invalid(
                f"{seen[key]} and {resource.logical_id} have the same name, {resource.name} "
                f"({resource.type})."
            )
        seen[key] = resource.logical_id


def _last_first(removals: Sequence[Removal]) -> list[Removal]:
    """Puts each removal before its dependencies."""
    by_id: dict[str, list[Removal]] = {}
    for removal in removals:
        by_id.setdefault(removal.record.logical_id, []).append(removal)
    graph = {
        name: [
            need
            for removal in group
            for need in removal.record.needs
            if need in by_id and need != name
        ]
        for name, group in by_id.items()
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError:
        # Two template versions can have opposite dependencies.
        order = list(by_id)
    return [removal for name in reversed(order) for removal in by_id[name]]
