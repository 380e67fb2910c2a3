"""Every constraint of every operation's input is enforced, at whatever depth it stands."""

from collections.abc import Iterator
from typing import Any

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate

DEEPEST = 5
NUMBERS = ("integer", "long", "float", "double")


def broken(shape, depth=0) -> Iterator[tuple[Any, str]]:
    """Values of a shape that break one constraint each, with the words that must tell of it."""
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    kind = shape.type_name
    if kind in NUMBERS:
        if least is not None:
            yield least - 1, f"Member must have value greater than or equal to {least}"
        if most is not None:
            yield most + 1, f"Member must have value less than or equal to {most}"
    elif kind == "string":
        yield from _broken_strings(shape, least, most)
    elif kind == "list":
        if least:
            yield [], f"Member must have length greater than or equal to {least}"
        if most is not None and most < 1000:
            yield (
                [_any(shape.member)] * (most + 1),
                f"Member must have length less than or equal to {most}",
            )
        if depth < DEEPEST:
            yield from (([value], words) for value, words in broken(shape.member, depth + 1))
    elif kind == "map" and depth < DEEPEST:
        yield from (({"k": value}, words) for value, words in broken(shape.value, depth + 1))
        yield from (({key: _any(shape.value)}, words) for key, words in broken(shape.key))
    elif kind == "structure" and depth < DEEPEST:
        for name in shape.required_members:
            yield {}, f"at '{name[0].lower()}{name[1:]}'" if not depth else "must not be null"
        for name, member in shape.members.items():
            yield from (({name: value}, words) for value, words in broken(member, depth + 1))


def _broken_strings(shape, least, most) -> Iterator[tuple[str, str]]:
    if most is not None and most < 10_000:
        yield "a" * (most + 1), f"Member must have length less than or equal to {most}"
    if least:
        yield "", f"Member must have length greater than or equal to {least}"
    if getattr(shape, "enum", None):
        yield "no such value", "Member must satisfy enum value set: ["


def _any(shape) -> Any:
    if shape.type_name in NUMBERS:
        return 1
    return {"structure": {}, "map": {}, "list": []}.get(shape.type_name, "a")


@pytest.mark.parametrize("name", ["sagemaker", "sagemaker-runtime", "sts", "iam"])
def test_every_constraint_is_enforced(name):
    tried = 0
    model = service(name)
    for operation_name in model.operation_names:
        operation = model.operation_model(operation_name)
        for params, words in broken(operation.input_shape) if operation.input_shape else ():
            tried += 1
            with pytest.raises(AwsError) as caught:
                validate(operation, params)
            assert words in caught.value.message, (operation_name, params)
    assert tried > 3
