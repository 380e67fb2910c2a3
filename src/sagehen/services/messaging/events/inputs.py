"""Computes a target's input, as in EventBridge's user guide (eb-transform-target-input).

In templates, a path that finds nothing becomes `null` or, within quotes, empty; text within quotes
is escaped as JSON. Paths have the forms `$`, `$.detail.name`, `$.resources[0]`, `$.detail['a-b']`.
"""

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from sagehen.base.errors import Invalid
from sagehen.services.messaging.events.records import Event, RuleRecord

__all__ = ["NOTHING", "check_input", "find", "input_for", "read_path", "text_to_read"]

NOTHING: Final = object()
"""result of a path that finds nothing"""

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"*\s]+) | \[(?P<place>\d{1,9})\] | \[(?P<all>\*)\]
    | \[(?P<quote>['"])(?P<quoted>[^'"]+)(?P=quote)\]""",
    re.VERBOSE,
)
_Step = str | int | None
"""key, list index, or None for all elements"""


@functools.lru_cache(maxsize=1024)
def read_path(text: str) -> tuple[_Step, ...]:
    """Raises Invalid."""
    if not text.startswith("$"):
        raise Invalid(f"a JSON path begins with $, not as {text[:64]!r}")
    steps: list[_Step] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise Invalid(f"the JSON path {text!r} cannot be read from character {position + 1} on")
        if match["place"] is not None:
            steps.append(int(match["place"]))
        else:
            steps.append(None if match["all"] else match["name"] or match["quoted"])
        position = match.end()
    return tuple(steps)


def find(path: str, value: Any) -> Any:
    return _find(read_path(path), value)


def _find(steps: tuple[_Step, ...], value: Any) -> Any:
    for number, step in enumerate(steps):
        if step is None:
            if not isinstance(value, list):
                return NOTHING
            matches = [_find(steps[number + 1 :], item) for item in value]
            return [item for item in matches if item is not NOTHING]
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return NOTHING
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return NOTHING
    return value


_WAYS = ("Input", "InputPath", "InputTransformer")
_PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.\-]+)>")
_OWN = (
    "aws.events.rule-arn",
    "aws.events.rule-name",
    "aws.events.event.ingestion-time",
    "aws.events.event",
    "aws.events.event.json",
)
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""not allowed in queue messages; JSON escapes them"""


class _Part(msgspec.Struct, frozen=True):
    """Literal text or a placeholder's name."""

    text: str
    is_name: bool = False
    in_quotes: bool = False


def check_input(target: Mapping[str, Any]) -> None:
    """Checks a target of PutTargets; raises Invalid."""
    used = [member for member in _WAYS if member in target]
    if len(used) > 1:
        raise Invalid(f"Only one of {', '.join(_WAYS)} must be provided, not {' and '.join(used)}")
    if "Input" in target:
        _check_json(target["Input"])
    if "InputPath" in target:
        read_path(target["InputPath"])
    if "InputTransformer" in target:
        _check_transformer(target["InputTransformer"])


def input_for(event: Event, rule: RuleRecord, target: Mapping[str, Any]) -> str:
    """Returns JSON, or text if the template is not JSON."""
    envelope = event.envelope()
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        value = find(target["InputPath"], envelope)
        return _json(None if value is NOTHING else value)
    if "InputTransformer" in target:
        return _filled(event, envelope, rule, target["InputTransformer"])
    return _json(envelope)


def text_to_read(text: str) -> str:
    """Formats for people: indented JSON, or a string without quotes."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    if isinstance(value, str):
        return value
    return msgspec.json.format(text, indent=2)


def _check_json(text: str) -> None:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"Input is not valid JSON: {error}") from None


def _check_transformer(transformer: Mapping[str, Any]) -> None:
    paths = transformer.get("InputPathsMap", {})
    for name, path in paths.items():
        if name.lower().startswith("aws"):
            raise Invalid(f"a variable of InputPathsMap cannot begin with AWS: {name}")
        read_path(path)
    unknown = {part.text for part in _parts(transformer["InputTemplate"]) if part.is_name}
    unknown -= {*paths, *_OWN}
    if unknown:
        raise Invalid(
            f"InputTemplate has the placeholder <{min(unknown)}>, which InputPathsMap does not have"
        )


def _filled(
    event: Event, envelope: dict[str, Any], rule: RuleRecord, transformer: Mapping[str, Any]
) -> str:
    values = {
        name: find(path, envelope) for name, path in transformer.get("InputPathsMap", {}).items()
    }
    moment = datetime.fromtimestamp(event.sent_at, UTC)
    values |= {
        "aws.events.rule-arn": rule.arn,
        "aws.events.rule-name": rule.name,
        "aws.events.event.ingestion-time": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "aws.events.event": {key: value for key, value in envelope.items() if key != "detail"},
        "aws.events.event.json": envelope,
    }
    template = transformer["InputTemplate"]
    is_json = _is_json(template)
    text = "".join([_text_of(part, values, is_json) for part in _parts(template)])
    return text if is_json else _NOT_TEXT.sub("\ufffd", text)


def _text_of(part: _Part, values: Mapping[str, Any], is_json: bool) -> str:
    if not part.is_name:
        return part.text
    value = values[part.text]
    if is_json and not part.in_quotes:
        return _json(None if value is NOTHING else value)
    if value is NOTHING:
        return ""
    text = value if isinstance(value, str) else _json(value)
    return _json(text)[1:-1] if part.in_quotes else text


@functools.lru_cache(maxsize=512)
def _parts(template: str) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    position, quoted = 0, False
    for match in _PLACEHOLDER.finditer(template):
        between = template[position : match.start()]
        quoted = _ends_in_quotes(between, quoted)
        parts += [_Part(between), _Part(match[1], is_name=True, in_quotes=quoted)]
        position = match.end()
    return (*parts, _Part(template[position:]))


def _ends_in_quotes(text: str, quoted: bool) -> bool:
    escaped = False
    for character in text:
        if quoted and not escaped and character == "\\":
            escaped = True
            continue
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = False
    return quoted


@functools.lru_cache(maxsize=512)
def _is_json(template: str) -> bool:
    """Tells whether the filled-in template is JSON."""
    tried = ["0" if part.is_name else part.text for part in _parts(template)]
    try:
        msgspec.json.decode("".join(tried))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
