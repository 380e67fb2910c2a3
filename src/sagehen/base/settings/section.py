"""The base of the sections of settings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["ImageRule", "Items", "Section", "items_of"]


def items_of(value: Any) -> Any:
    """Reads `a, b`, `[a, b]` or a list of texts; drops empty texts."""
    if isinstance(value, str):
        value = value.strip().removeprefix("[").removesuffix("]").split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("Input should be one text with commas, or a list of texts")
    stripped = (item.strip().strip("\"'") for item in value)
    return tuple(dict.fromkeys(item for item in stripped if item))


Items = Annotated[tuple[str, ...], BeforeValidator(items_of)]


def _check_rule(value: Any) -> Any:
    is_command = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not is_command and value not in ("docker", "process"):
        raise ValueError("Input should be a command as a list of texts, or `docker` or `process`")
    return value


ImageRule = Annotated[list[str] | Literal["docker", "process"], BeforeValidator(_check_rule)]


class Section(BaseModel):
    """Settings that belong together. The docstring of each section is its heading in the docs."""

    # Deferred: of most sections only the whole table is ever validated.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
