"""What the sections of the table of settings have in common."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["Items", "Section", "items_of"]


def items_of(value: Any) -> Any:
    """`a, b`, `[a, b]` or a list of texts; what is empty is dropped."""
    if isinstance(value, str):
        value = value.strip().removeprefix("[").removesuffix("]").split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("Input should be one text with commas, or a list of texts")
    stripped = (one.strip().strip("\"'") for one in value)
    return tuple(dict.fromkeys(one for one in stripped if one))


Items = Annotated[tuple[str, ...], BeforeValidator(items_of)]


class Section(BaseModel):
    """Some settings that belong together. The docstring of each is its heading in the docs."""

    # Deferred: of most sections only the whole table is ever validated.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
