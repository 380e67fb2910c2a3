"""What each type of resource can do. One file a family; `sagehen.apply.kinds` has them all."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from sagehen.apply.aws import Aws, Place
from sagehen.apply.schema import Read, structure
from sagehen.errors import Invalid

__all__ = ["READY", "Kind", "Live", "Status", "comparable", "tag_changes"]

Status = Literal["ready", "busy", "failed", "going"]
READY: Status = "ready"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as it is now."""

    name: str
    properties: dict[str, Any]
    """What there is to be seen of them; more than a template says, such as defaults."""
    status: Status = READY
    reason: str = ""
    attributes: dict[str, str] = {}
    """What only the server knows of its attributes."""


class Kind(ABC):
    """A type of resource.

    `properties` is what a template says, read; `name` is what the API knows the resource by.
    """

    type: ClassVar[str]
    name_property: ClassVar[str | None] = None
    """The property that names it; None where it has no name but what the server gives it."""
    longest_name: ClassVar[int] = 63
    lower_names: ClassVar[bool] = False
    named_by_content: ClassVar[bool] = False
    """A generated name is another one as soon as anything is that cannot change."""
    fixed: ClassVar[frozenset[str] | None] = frozenset()
    """The properties whose change needs another resource; None: all but Tags."""
    unseen: ClassVar[frozenset[str]] = frozenset()
    """The properties that nobody can see once they are given."""
    required: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def comparable(properties: dict[str, Any]) -> dict[str, Any]:
    """The same, with tags as a mapping: they have no order."""
    tags = properties.get("Tags")
    if not isinstance(tags, list):
        return properties
    return {**properties, "Tags": {one["Key"]: one["Value"] for one in tags}}


def tag_changes(
    live: Live, before: dict[str, Any], after: dict[str, Any]
) -> tuple[list[dict[str, str]], list[str]]:
    """The tags to be set, and the keys of those to go: what others have put there stays."""
    there, wanted = ({one["Key"]: one for one in of.get("Tags", [])} for of in (live.properties, after))
    changed = [tag for key, tag in wanted.items() if there.get(key) != tag]
    ours = [one["Key"] for one in before.get("Tags", [])]
    return changed, [key for key in ours if key in there and key not in wanted]
