"""Finds which resources refer to which, and so their order."""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sagehen.apply.template.functions import PSEUDO, is_function
from sagehen.apply.template.template import ResourceSource, Template
from sagehen.base.errors import Invalid

__all__ = ["check_references", "in_order", "needs", "present"]

_IN_SUB = re.compile(r"\$\{([^!}][^}]*)\}")


def check_references(template: Template) -> None:
    """Raises Invalid for references without target, also in branches not taken."""
    known = {*template.parameters, *template.resources, *PSEUDO}
    for section, values in (
        ("Resources", [one.properties for one in template.resources.values()]),
        ("Outputs", [one.value for one in template.outputs.values()]),
    ):
        missing = dict.fromkeys(name for name in _names(values, None) if name not in known)
        _refuse(list(missing), section)
    named = [name for one in template.resources.values() for name in one.depends_on]
    _refuse([name for name in named if name not in template.resources], "Resources")


def present(template: Template, conditions: Mapping[str, bool]) -> dict[str, ResourceSource]:
    return {
        name: one
        for name, one in template.resources.items()
        if one.condition is None or conditions[one.condition]
    }


def needs(template: Template, conditions: Mapping[str, bool]) -> dict[str, list[str]]:
    """Returns each resource's dependencies; raises Invalid if the condition of one is false."""
    resources = present(template, conditions)
    found: dict[str, list[str]] = {}
    for name, one in resources.items():
        referred = [
            other for other in _names(one.properties, conditions) if other in template.resources
        ]
        _refuse([other for other in referred if other not in resources], "Resources")
        awaited = [other for other in one.depends_on if other in resources]
        found[name] = list(dict.fromkeys([*referred, *awaited]))
    return found


def in_order(needed: Mapping[str, list[str]]) -> list[str]:
    """Sorts by dependency; raises Invalid for a circle."""
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise Invalid(f"Circular dependency between resources: [{', '.join(circle)}]") from None


def _names(value: Any, conditions: Mapping[str, bool] | None) -> Iterator[str]:
    """Yields the names referred to; `conditions` select the branches."""
    if is_function(value):
        ((name, argument),) = value.items()
        if name == "Ref" and isinstance(argument, str):
            yield argument
        elif name == "Fn::GetAtt":
            yield from _of_attribute(argument, conditions)
        elif name == "Fn::Sub":
            yield from _of_sub(argument, conditions)
        elif name == "Fn::If" and isinstance(argument, list) and len(argument) == 3:
            yield from _of_branches(argument, conditions)
        else:
            yield from _names(argument, conditions)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _names(one, conditions)
    elif isinstance(value, list):
        for one in value:
            yield from _names(one, conditions)


def _of_attribute(argument: Any, conditions: Mapping[str, bool] | None) -> Iterator[str]:
    if isinstance(argument, str):
        yield argument.partition(".")[0]
    elif isinstance(argument, list) and argument and isinstance(argument[0], str):
        yield argument[0]
        yield from _names(argument[1:], conditions)


def _of_sub(argument: Any, conditions: Mapping[str, bool] | None) -> Iterator[str]:
    template, given = argument, {}
    if isinstance(argument, list) and len(argument) == 2:
        template, given = argument
    if isinstance(template, str) and isinstance(given, dict):
        for found in _IN_SUB.findall(template):
            if found.strip() not in given:
                yield found.strip().partition(".")[0]
        yield from _names(given, conditions)


def _of_branches(argument: list[Any], conditions: Mapping[str, bool] | None) -> Iterator[str]:
    name, when, otherwise = argument
    if conditions is None or name not in conditions:
        yield from _names([when, otherwise], conditions)
    else:
        yield from _names(when if conditions[name] else otherwise, conditions)


def _refuse(missing: list[str], section: str) -> None:
    if missing:
        raise Invalid(
            f"Template format error: Unresolved resource dependencies [{', '.join(missing)}] in "
            f"the {section} block of the template"
        )
