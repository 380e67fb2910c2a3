"""Reads a template from YAML with CloudFormation's short tags, or from JSON.

As in CloudFormation, `2010-09-09`, `012345678901`, `12:30` and `yes` are text. Duplicate keys are
refused; so are aliases, because a few lines of them can expand beyond any memory.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import yaml

from sagehen.base.errors import Invalid

__all__ = ["MAX_TEMPLATE_BYTES", "Written", "read_template_file", "read_text"]

MAX_TEMPLATE_BYTES = 1_048_576
"""CloudFormation's limit in S3"""
DEEPEST = 100
"""nested lists and mappings"""

_SHORT_TAGS = {
    **{f"!{name}": name for name in ("Ref", "Condition")},
    **{
        f"!{name}": f"Fn::{name}"
        for name in (
            *("And", "Base64", "Cidr", "Equals", "FindInMap", "ForEach", "GetAZs", "GetAtt", "If"),
            *("ImportValue", "Join", "Length", "Not", "Or", "Select", "Split", "Sub"),
            *("ToJsonString", "Transform"),
        )
    },
}


class Written(float):
    """A number that keeps its text: `1.10` and not `1.1`."""

    text: str

    def __new__(cls, text: str) -> "Written":
        number = super().__new__(cls, text)  # raises ValueError
        number.text = text
        return number


def read_template_file(path: Path) -> dict[str, Any]:
    """Reads a template; raises Invalid, with the line, if the file is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEMPLATE_BYTES + 1)
    except OSError as error:
        raise Invalid(f"The template {path} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_TEMPLATE_BYTES:
        raise Invalid(
            f"The template {path} is over {MAX_TEMPLATE_BYTES} bytes, CloudFormation's limit."
        )
    try:
        return read_text(content.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise Invalid(f"The template {path} is not in UTF-8: {error.reason}.") from error


def read_text(text: str, name: str) -> dict[str, Any]:
    try:
        document = _read_json(text) if text.lstrip()[:1] == "{" else _read_yaml(text)
    except json.JSONDecodeError as error:
        where = f"{name}, line {error.lineno}, column {error.colno}"
        raise Invalid(f"Template format error: JSON not well-formed. ({where}: {error.msg})") from (
            error
        )
    except yaml.MarkedYAMLError as error:
        raise Invalid(f"Template format error: {_say(error, name)}") from error
    except yaml.YAMLError as error:
        raise Invalid(f"Template format error: YAML not well-formed. ({name}: {error})") from error
    except RecursionError:
        raise _too_deep(name) from None
    if not isinstance(document, dict):
        raise Invalid(f"Template format error: {name} is not a mapping of sections.")
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        level = [inner for node in level for inner in _inside(node)]
    if level:
        raise _too_deep(name)
    return document


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep(name: str) -> Invalid:
    return Invalid(f"Template format error: {name} is nested over {DEEPEST} levels deep.")


def _read_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise Invalid(f"Template format error: the key {twice} is defined twice.")
        return mapping

    def number(text: str) -> int | Written:
        mapping = _number(text, whole=text.lstrip("-").isdigit())
        if mapping is None:
            raise Invalid(f"Template format error: {text[:64]} is not a number.")
        return mapping

    return json.loads(
        text,
        object_pairs_hook=unique,
        parse_int=number,
        parse_float=number,
        parse_constant=number,
    )


def _number(text: str, whole: bool) -> int | Written | None:
    """Returns None if the text is not a finite number."""
    try:
        number = int(text) if whole else Written(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _read_yaml(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _say(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
    problem = " ".join(part for part in (error.context, error.problem) if part)
    return f"YAML not well-formed. ({where}: {problem})"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, "aliases are not supported in templates", event.start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a text", key.start_mark
                )
            if key.value in seen:
                problem = f"the key {key.value} is defined twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        # Keys are text, even account ids and years.
        return {
            str(key.value): self.construct_object(value, deep=True) for key, value in node.value
        }

    def construct_short(self, node: yaml.Node) -> dict[str, Any]:
        """Turns `!Sub x` into `{"Fn::Sub": x}`; does not split `!GetAtt a.b`."""
        if isinstance(node, yaml.ScalarNode):
            value = self.construct_scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            value = self.construct_sequence(node, deep=True)
        else:
            value = self.construct_mapping(node, deep=True)
        return {_SHORT_TAGS[node.tag]: value}

    def construct_number(self, node: yaml.ScalarNode) -> int | Written:
        text = self.construct_scalar(node)
        number = _number(text, whole=node.tag == _INT)
        if number is None:
            problem = f"{text[:64]} is not a number"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return number

    def construct_flag(self, node: yaml.ScalarNode) -> bool:
        word = self.construct_scalar(node).lower()
        if word not in ("true", "false"):
            problem = f"{word[:64]} is neither true nor false"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return bool(word == "true")

    def construct_other(self, node: yaml.Node) -> Any:
        problem = f"{node.tag} is no tag that CloudFormation has"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_SCALARS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?|[1-9][0-9]*[eE][-+]?[0-9]+)",
        list("-+0123456789"),
    ),
)
_CONSTRUCTORS: dict[str | None, Any] = {
    "tag:yaml.org,2002:null": _Loader.construct_yaml_null,
    "tag:yaml.org,2002:bool": _Loader.construct_flag,
    _INT: _Loader.construct_number,
    _FLOAT: _Loader.construct_number,
    "tag:yaml.org,2002:str": _Loader.construct_yaml_str,
    "tag:yaml.org,2002:seq": _Loader.construct_yaml_seq,
    "tag:yaml.org,2002:map": _Loader.construct_mapping,
    **dict.fromkeys(_SHORT_TAGS, _Loader.construct_short),
    None: _Loader.construct_other,
}
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)
for _name, _construct in _CONSTRUCTORS.items():
    _Loader.add_constructor(_name, _construct)
