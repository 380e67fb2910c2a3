"""What the sections of the table of settings have in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """Some settings that belong together. The docstring of each is its heading in the docs."""

    # Deferred: of most sections only the whole table is ever validated.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
