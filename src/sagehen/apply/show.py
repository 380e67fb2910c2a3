"""Renders a plan, with a line for each resource and its changes below."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sagehen.apply.plan import Action, Difference, Removal, StackPlan, StackStep

__all__ = ["render_outputs", "render_plan"]

_SIGNS = {
    Action.SAME: ("  =", "dim"),
    Action.CREATE: ("  +", "green"),
    Action.FINISH: ("  ~", "yellow"),
    Action.UPDATE: ("  ~", "yellow"),
    Action.REPLACE: ("-/+", "red"),
    Action.RECREATE: ("-/+", "red"),
    Action.ADOPT: ("  <", "green"),
}
_LONGEST_VALUE = 120
_HIDDEN = "****"


def render_plan(plan: StackPlan, stack: str) -> RenderableType:
    lines = [Text(f"Stack {stack}")]
    for step in plan.steps:
        lines += _step(step)
    lines += [_removal(one) for one in plan.removals]
    lines.append(Text(_summary(plan)))
    return Group(*lines)


def render_outputs(
    outputs: Mapping[str, str], descriptions: Mapping[str, str], hidden: Collection[str]
) -> RenderableType:
    width = max(map(len, outputs), default=0)
    lines = [Text("Outputs")]
    for name, value in outputs.items():
        about = descriptions.get(name)
        shown = _HIDDEN if name in hidden else value
        lines.append(Text(f"  {name:<{width}}  {shown}") + Text(f"  {about or ''}", "dim"))
    return Group(*lines)


def _step(step: StackStep) -> list[Text]:
    sign, style = _SIGNS[step.action]
    desired = step.desired
    name = desired.name or "unnamed"
    if step.action is Action.REPLACE and step.old is not None:
        name = f"{step.old.name} -> {name}"
    line = Text(f"{sign} {desired.type} {desired.logical_id} ({name})", style)
    note = step.note or _NOTES.get(step.action, "")
    if step.action is Action.REPLACE and not step.note:
        fixed = dict.fromkeys(
            one.member for one in step.changes if desired.kind.is_fixed(one.member)
        )
        note = f"{', '.join(fixed)} cannot be changed in place" if fixed else ""
    if note:
        line.append(f": {note}")
    hidden = (step.old.hidden if step.old else (), desired.hidden)
    lines = [line] + [_change(one, hidden) for one in step.changes]
    for one in step.drift:
        mended = not desired.kind.is_fixed(one.member)
        about = "changed by somebody else" if mended else "changed by somebody else, and left so"
        lines.append(_change(one, hidden, f"   ({about})"))
    return lines


_NOTES = {
    Action.FINISH: "begun before, and waited for",
    Action.ADOPT: "it is there already, and taken over",
}


def _removal(removal: Removal) -> Text:
    kept = removal.kept
    what = f"{kept.type} {kept.logical_id} ({kept.name or 'unnamed'})"
    if removal.retained:
        return Text(f"    {what}: kept, and no longer of the stack", "dim")
    return Text(f"  - {what}", "red")


def _change(
    change: Difference, hidden: tuple[Sequence[str], Sequence[str]], about: str = ""
) -> Text:
    before = _value(change.before, change.path, hidden[0])
    after = _value(change.after, change.path, hidden[1])
    return Text(f"      {change.path}: {before} -> {after}{about}")


def _value(value: Any, path: str, hidden: Sequence[str]) -> str:
    if value is None:
        return "(none)"
    if any(_is_within(one, path) or _is_within(path, one) for one in hidden):
        return _HIDDEN
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _is_within(path: str, other: str) -> bool:
    return path == other or path.startswith((f"{other}.", f"{other}["))


def _summary(plan: StackPlan) -> str:
    count = {
        "to create": [Action.CREATE],
        "to take over": [Action.ADOPT],
        "to change": [Action.UPDATE, Action.FINISH],
        "to replace": [Action.REPLACE, Action.RECREATE],
    }
    replaced = {
        (one.old.type, one.old.name)
        for one in plan.steps
        if one.action is Action.REPLACE and one.old is not None
    }
    parts = [
        f"{number} {what}"
        for what, actions in count.items()
        if (number := sum(one.action in actions for one in plan.steps))
    ]
    deleted = sum(
        not one.retained and (one.kept.type, one.kept.name) not in replaced for one in plan.removals
    )
    if deleted:
        parts.append(f"{deleted} to delete")
    return f"Plan: {', '.join(parts)}." if parts else "Nothing to do."
