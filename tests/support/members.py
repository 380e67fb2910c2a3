"""Requests with one more member, of a value that the service model allows."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sagehen.app.api.members import input_members, is_listed
from sagehen.wire.services import Shape, service
from sagehen.wire.validation.patterns import compile_pattern

__all__ = ["insert_member", "place_of"]


def place_of(name: str, listed: str, operations: Iterable[str]) -> tuple[str, str, Shape]:
    """Returns the first of the operations that have the member, its path and its shape."""
    for operation in operations:
        shape = service(name).operation_model(operation).input_shape
        for member, path, inner in input_members(shape):
            if is_listed((listed,), member):
                return operation, path, inner
    raise AssertionError(f"None of the operations has {listed}.")


def insert_member(params: Any, shape: Shape, path: list[str]) -> None:
    """Sets the member at `path`, whose parts are like `Targets[]`."""
    name = path[0].removesuffix("[]")
    member = shape.members[name]
    if len(path) == 1:
        params[name] = value_of(member)
        return
    inner = params.setdefault(name, value_of(member))
    if path[0].endswith("[]"):
        inner, member = inner[0], member.member
    insert_member(inner, member, path[1:])


TEXTS = (
    "a",
    "a.a",
    "text/csv",
    "application/json",
    "mig-1g.5gb",
    "s3://unsupported/key",
    "arn:aws:iam::000000000000:role/any",
    "arn:aws:sagemaker:us-east-1:000000000000:mlflow-app/a",
    "arn:aws:vpc-lattice:us-east-1:000000000000:resourceconfiguration/rcfg-0123456789abcdef0",
)


def value_of(shape: Shape) -> Any:
    """A valid value, of required members or else of one."""
    kind = shape.type_name
    if kind == "structure":
        names = shape.required_members or list(shape.members)[:1]
        return {name: value_of(shape.members[name]) for name in names}
    if kind == "list":
        return [value_of(shape.member)] * max(1, shape.metadata.get("min", 1))
    if kind == "map":
        return {value_of(shape.key): value_of(shape.value)}
    if kind == "string":
        return text_of(shape)
    least = shape.metadata.get("min", 1)
    scalars = {"boolean": True, "blob": b"a", "timestamp": datetime.now(UTC)}
    return scalars.get(kind, least)


def text_of(shape: Shape) -> str:
    if shape.enum:
        return str(shape.enum[0])
    pattern, metadata = shape.metadata.get("pattern", ".*"), shape.metadata
    for text in TEXTS:
        fits = metadata.get("min", 0) <= len(text) <= metadata.get("max", 2**31)
        if fits and compile_pattern(pattern).fullmatch(text):
            return text
    raise AssertionError(f"TEXTS has none for {shape.name}: {pattern}")
