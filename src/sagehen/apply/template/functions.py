"""Evaluates a template's intrinsic functions and conditions."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from sagehen.apply.template.parameters import Secret, Value, text_of
from sagehen.base.errors import Invalid

__all__ = ["NO_VALUE", "PSEUDO", "TemplateScope", "evaluate", "evaluate_conditions", "is_function"]

PSEUDO = (
    "AWS::AccountId",
    "AWS::NoValue",
    "AWS::Partition",
    "AWS::Region",
    "AWS::StackId",
    "AWS::StackName",
    "AWS::URLSuffix",
)
MAX_TEXT_LENGTH = 1_048_576
"""a template's limit; nested functions could make text of any length"""
_IN_SUB = re.compile(r"\$\{(!?)([^}]*)\}")


class _NoValue:
    def __repr__(self) -> str:
        return "AWS::NoValue"


NO_VALUE = _NoValue()
"""removes the property that has this value"""

Attribute = Callable[[str, str | None], Any]
"""a resource's attribute by logical id; with None, its Ref"""


@dataclass(frozen=True)
class TemplateScope:
    """The values to which functions refer."""

    parameters: Mapping[str, Value]
    """with pseudo parameters except AWS::NoValue"""
    mappings: Mapping[str, Mapping[str, Mapping[str, Any]]]
    conditions: Mapping[str, bool]
    attribute: Attribute


def is_function(value: Any, *, in_conditions: bool = False) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    (name,) = value
    names = ("Ref", "Condition") if in_conditions else ("Ref",)
    return bool(name in names or name.startswith("Fn::"))


def evaluate(value: Any, scope: TemplateScope, path: str) -> Any:
    """Evaluates all functions; returns NO_VALUE if the value is to be removed.

    Raises Invalid, naming `path`, for unknown functions or wrong arguments.
    """
    if is_function(value):
        return _call(value, scope, path)
    if isinstance(value, dict):
        if any(name.startswith("Fn::") for name in value):
            raise Invalid(
                f"Template format error: a function must be the only key of its mapping ({path})."
            )
        members = {name: evaluate(item, scope, f"{path}/{name}") for name, item in value.items()}
        return {name: item for name, item in members.items() if item is not NO_VALUE}
    if isinstance(value, list):
        items = [evaluate(item, scope, f"{path}/{number}") for number, item in enumerate(value)]
        return [item for item in items if item is not NO_VALUE]
    return value


def evaluate_conditions(declared: Mapping[str, Any], scope: TemplateScope) -> dict[str, bool]:
    """Evaluates conditions; raises Invalid if one uses other functions or refers to itself."""
    results: dict[str, bool] = {}
    for name in declared:
        _settle(name, declared, scope, results, ())
    return results


def _settle(
    name: str,
    declared: Mapping[str, Any],
    scope: TemplateScope,
    results: dict[str, bool],
    within: tuple[str, ...],
) -> bool:
    if name in results:
        return results[name]
    if name not in declared:
        raise Invalid(f"Template validation error: the condition {name} is not defined.")
    if name in within:
        raise Invalid(f"Circular dependency between conditions: [{', '.join(within)}]")
    path = f"/Conditions/{name}"
    settle = partial(
        _settle, declared=declared, scope=scope, results=results, within=(*within, name)
    )
    results[name] = _holds(declared[name], scope, path, settle)
    return results[name]


def _holds(value: Any, scope: TemplateScope, path: str, settle: Callable[[str], bool]) -> bool:
    if is_function(value, in_conditions=True):
        ((name, argument),) = value.items()
        if name == "Condition" and isinstance(argument, str):
            return settle(argument)
        if name in ("Fn::And", "Fn::Or", "Fn::Not"):
            minimum, maximum = (1, 1) if name == "Fn::Not" else (2, 10)
            if not isinstance(argument, list) or not minimum <= len(argument) <= maximum:
                raise Invalid(
                    f"Template validation error: every {name} object requires a list of "
                    f"{minimum} to {maximum} conditions ({path})."
                )
            held = [_holds(operand, scope, path, settle) for operand in argument]
            return {"Fn::And": all(held), "Fn::Or": any(held), "Fn::Not": not held[0]}[name]
        if name == "Fn::Equals":
            left, right = _arguments(name, argument, 2, path)
            sides = [_plain(evaluate(operand, scope, path)) for operand in (left, right)]
            return bool(sides[0] == sides[1])
    raise Invalid(
        f"Template format error: Conditions can only be boolean operations on parameters and "
        f"other conditions ({path})"
    )


def _plain(value: Any) -> Any:
    text = text_of(value)
    return value if text is None else text


def _call(value: dict[str, Any], scope: TemplateScope, path: str) -> Any:
    ((name, argument),) = value.items()
    function = _FUNCTIONS.get(name)
    if function is None:
        raise Invalid(
            f"Template error: {name} is not implemented by Sagehen ({path}). It has "
            f"{', '.join(_FUNCTIONS)}."
        )
    return function(argument, scope, path)


def _ref(argument: Any, scope: TemplateScope, path: str) -> Any:
    if not isinstance(argument, str):
        raise Invalid(f"Template error: every Ref object must have a single String value. ({path})")
    if argument == "AWS::NoValue":
        return NO_VALUE
    if argument in scope.parameters:
        return scope.parameters[argument]
    return scope.attribute(argument, None)


def _get_att(argument: Any, scope: TemplateScope, path: str) -> Any:
    parts = argument.split(".", 1) if isinstance(argument, str) else argument
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[0], str):
        raise Invalid(
            "Template error: every Fn::GetAtt object requires two non-empty parameters, the "
            f"resource name and the resource attribute ({path})"
        )
    return scope.attribute(parts[0], _text("Fn::GetAtt", parts[1], scope, path))


def _sub(argument: Any, scope: TemplateScope, path: str) -> str:
    template, values = argument if _is_pair(argument) else (argument, {})
    if not isinstance(template, str) or not isinstance(values, dict):
        raise Invalid(
            "Template error: One or more Fn::Sub intrinsic functions don't specify expected "
            "arguments. Specify a string as first argument, and an optional second argument to "
            f"specify a mapping of values to replace in the string ({path})"
        )

    @cache
    def value_of(name: str) -> str:
        reference = {"Fn::GetAtt": name} if "." in name else {"Ref": name}
        return _text("Fn::Sub", values.get(name, reference), scope, path)

    parts, position, length = [], 0, 0
    for match in _IN_SUB.finditer(template):
        value = "${" + match[2] + "}" if match[1] else value_of(match[2].strip())
        parts += [template[position : match.start()], value]
        position, length = match.end(), length + len(value)
        _check_length("Fn::Sub", length, path)
    return _made_of(parts, "".join([*parts, template[position:]]))


def _made_of(parts: Iterable[str], text: str) -> str:
    return Secret(text) if any(isinstance(part, Secret) for part in parts) else text


def _check_length(name: str, length: int, path: str) -> None:
    if length > MAX_TEXT_LENGTH:
        raise Invalid(
            f"Template error: the result of {name} is over {MAX_TEXT_LENGTH} characters ({path})."
        )


def _is_pair(argument: Any) -> bool:
    return isinstance(argument, list) and len(argument) == 2


def _join(argument: Any, scope: TemplateScope, path: str) -> str:
    separator, items = _arguments("Fn::Join", argument, 2, path)
    values = _list("Fn::Join", items, scope, path)
    if not isinstance(separator, str):
        raise Invalid(f"Template error: the delimiter of Fn::Join must be a string ({path}).")
    texts = [_text("Fn::Join", value, scope, path) for value in values]
    _check_length("Fn::Join", sum(map(len, texts)) + len(separator) * len(texts), path)
    return _made_of(texts, separator.join(texts))


def _select(argument: Any, scope: TemplateScope, path: str) -> Any:
    index, items = _arguments("Fn::Select", argument, 2, path)
    number = _text("Fn::Select", index, scope, path)
    values = _list("Fn::Select", items, scope, path)
    if not number.isascii() or not number.isdigit() or int(number) >= len(values):
        raise Invalid(
            f"Template error: Fn::Select cannot select nonexistent value at index {number} ({path})"
        )
    return values[int(number)]


def _split(argument: Any, scope: TemplateScope, path: str) -> list[str]:
    separator, source = _arguments("Fn::Split", argument, 2, path)
    if not isinstance(separator, str) or not separator:
        raise Invalid(f"Template error: the delimiter of Fn::Split must be a string ({path}).")
    text = _text("Fn::Split", source, scope, path)
    return [_made_of([text], part) for part in text.split(separator)]


def _if(argument: Any, scope: TemplateScope, path: str) -> Any:
    name, when, otherwise = _arguments("Fn::If", argument, 3, path)
    if not isinstance(name, str) or name not in scope.conditions:
        raise Invalid(f"Template error: unresolved condition dependency {name} in Fn::If ({path})")
    return evaluate(when if scope.conditions[name] else otherwise, scope, path)


def _find_in_map(argument: Any, scope: TemplateScope, path: str) -> Any:
    keys = [
        _text("Fn::FindInMap", key, scope, path)
        for key in _arguments("Fn::FindInMap", argument, 3, path)
    ]
    level: Any = scope.mappings
    for key in keys:
        if key not in level:
            raise Invalid(f"Template error: Unable to get mapping for {'::'.join(keys)} ({path})")
        level = level[key]
    return level


def _base64(argument: Any, scope: TemplateScope, path: str) -> str:
    text = _text("Fn::Base64", argument, scope, path)
    return _made_of([text], base64.b64encode(text.encode()).decode())


def _arguments(name: str, argument: Any, count: int, path: str) -> list[Any]:
    if not isinstance(argument, list) or len(argument) != count:
        raise Invalid(
            f"Template error: every {name} object requires a list of {count} parameters ({path})"
        )
    return argument


def _list(name: str, value: Any, scope: TemplateScope, path: str) -> list[Any]:
    result = evaluate(value, scope, path)
    if not isinstance(result, list):
        raise Invalid(f"Template error: {name} needs a list of strings ({path})")
    return result


def _text(name: str, value: Any, scope: TemplateScope, path: str) -> str:
    text = text_of(evaluate(value, scope, path))
    if text is None:
        raise Invalid(f"Template error: {name} needs a string, but has another type ({path})")
    return text


_FUNCTIONS: dict[str, Callable[[Any, TemplateScope, str], Any]] = {
    "Ref": _ref,
    "Fn::GetAtt": _get_att,
    "Fn::Sub": _sub,
    "Fn::Join": _join,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::If": _if,
    "Fn::FindInMap": _find_in_map,
    "Fn::Base64": _base64,
}
