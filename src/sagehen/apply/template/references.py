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
        ("Resources", [resource.properties for resource in template.resources.values()]),
        ("Outputs", [output.value for output in template.outputs.values()]),
    ):
        missing = dict.fromkeys(name for name in _names(values, None) if name not in known)
        _refuse(list(missing), section)
    named = [name for resource in template.resources.values() for name in resource.depends_on]
    _refuse([name for name in named if name not in template.resources], "Resources")


def present(template: Template, conditions: Mapping[str, bool]) -> dict[str, ResourceSource]:
    return {
        name: resource
        for name, resource in template.resources.items()
        if resource.condition is None or conditions[resource.condition]
    }


def needs(template: Template, conditions: Mapping[str, bool]) -> dict[str, list[str]]:
    """Returns each resource's dependencies; raises Invalid if the condition of one is false."""
    resources = present(template, conditions)
    result: dict[str, list[str]] = {}
    for name, resource in resources.items():
        referred = [
            referred_name
            for referred_name in _names(resource.properties, conditions)
            if referred_name in template.resources
        ]
        _refuse(
            [referred_name for referred_name in referred if referred_name not in resources],
            "Resources",
        )
        awaited = [
            referred_name for referred_name in resource.depends_on if referred_name in resources
        ]
        result[name] = list(dict.fromkeys([*referred, *awaited]))
    return result


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
        for item in value.values():
            yield from _names(item, conditions)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item, conditions)


def _of_attribute(argument: Any, conditions: Mapping[str, bool] | None) -> Iterator[str]:
    if isinstance(argument, str):
        yield argument.partition(".")[0]
    elif isinstance(argument, list) and argument and isinstance(argument[0], str):
        yield argument[0]
        yield from _names(argument[1:], conditions)


def _of_sub(argument: Any, conditions: Mapping[str, bool] | None) -> Iterator[str]:
    template, variables = argument, {}
    if isinstance(argument, list) and len(argument) == 2:
        template, variables = argument
    if isinstance(template, str) and isinstance(variables, dict):
        for referred_name in _IN_SUB.findall(template):
            if referred_name.strip() not in variables:
                yield referred_name.strip().partition(".")[0]
        yield from _names(variables, conditions)


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
