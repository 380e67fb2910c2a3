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
_MAX_VALUE_LENGTH = 120
_HIDDEN = "****"


def render_plan(plan: StackPlan, stack: str) -> RenderableType:
    lines = [Text(f"Stack {stack}")]
    for step in plan.steps:
        lines += _step(step)
    lines += [_removal(removal) for removal in plan.removals]
    lines.append(Text(_summary(plan)))
    return Group(*lines)


def render_outputs(
    outputs: Mapping[str, str], descriptions: Mapping[str, str], hidden: Collection[str]
) -> RenderableType:
    width = max(map(len, outputs), default=0)
    lines = [Text("Outputs")]
    for name, value in outputs.items():
        description = descriptions.get(name)
        text = _HIDDEN if name in hidden else value
        lines.append(Text(f"  {name:<{width}}  {text}") + Text(f"  {description or ''}", "dim"))
    return Group(*lines)


def _step(step: StackStep) -> list[Text]:
    sign, style = _SIGNS[step.action]
    desired = step.desired
    name = desired.name or "unnamed"
    if step.action is Action.REPLACE and step.old is not None:
        name = f"{step.old.name} -> {name}"
    heading = Text(f"{sign} {desired.type} {desired.logical_id} ({name})", style)
    note = step.note or _NOTES.get(step.action, "")
    if step.action is Action.REPLACE and not step.note:
        fixed = dict.fromkeys(
            change.member for change in step.changes if desired.kind.is_fixed(change.member)
        )
        note = f"{', '.join(fixed)} cannot be changed in place" if fixed else ""
    if desired.kind.is_recorded_only and not note:
        note = "stored without effect, as Sagehen has no access control yet"
    if note:
        heading.append(f": {note}")
    hidden = (step.old.hidden if step.old else (), desired.hidden)
    lines = [heading] + [_change(change, hidden) for change in step.changes]
    for change in step.drift:
        mended = not desired.kind.is_fixed(change.member)
        about = "changed by somebody else" if mended else "changed by somebody else, and left so"
        lines.append(_change(change, hidden, f"   ({about})"))
    return lines


_NOTES = {
    Action.FINISH: "begun before, and waited for",
    Action.ADOPT: "it is there already, and taken over",
}


def _removal(removal: Removal) -> Text:
    record = removal.record
    title = f"{record.type} {record.logical_id} ({record.name or 'unnamed'})"
    if removal.retained:
        return Text(f"    {title}: kept, and no longer part of the stack", "dim")
    return Text(f"  - {title}", "red")


def _change(
    change: Difference, hidden: tuple[Sequence[str], Sequence[str]], about: str = ""
) -> Text:
    before = _value(change.before, change.path, hidden[0])
    after = _value(change.after, change.path, hidden[1])
    return Text(f"      {change.path}: {before} -> {after}{about}")


def _value(value: Any, path: str, hidden: Sequence[str]) -> str:
    if value is None:
        return "(none)"
    if any(
        _is_within(hidden_path, path) or _is_within(path, hidden_path) for hidden_path in hidden
    ):
        return _HIDDEN
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _is_within(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith((f"{ancestor}.", f"{ancestor}["))


def _summary(plan: StackPlan) -> str:
    count = {
        "to create": [Action.CREATE],
        "to take over": [Action.ADOPT],
        "to change": [Action.UPDATE, Action.FINISH],
        "to replace": [Action.REPLACE, Action.RECREATE],
    }
    replaced = {
        (step.old.type, step.old.name)
        for step in plan.steps
        if step.action is Action.REPLACE and step.old is not None
    }
    parts = [
        f"{number} {label}"
        for label, actions in count.items()
        if (number := sum(step.action in actions for step in plan.steps))
    ]
    deleted = sum(
        not removal.retained and (removal.record.type, removal.record.name) not in replaced
        for removal in plan.removals
    )
    if deleted:
        parts.append(f"{deleted} to delete")
    return f"Plan: {', '.join(parts)}." if parts else "Nothing to do."
