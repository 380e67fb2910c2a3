"""What each type of resource can do. One file a family; `sagehen.apply.resources` has them all."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from sagehen.apply.client import Aws, Destination
from sagehen.apply.template.schema import Read, structure
from sagehen.base.errors import Invalid

__all__ = ["READY", "ActualState", "ResourceKind", "Status", "comparable", "tag_changes"]

Status = Literal["ready", "busy", "failed", "going"]
READY: Status = "ready"


class ActualState(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as it is now."""

    name: str
    properties: dict[str, Any]
    """What there is to be seen of them; more than a template says, such as defaults."""
    status: Status = READY
    reason: str = ""
    attributes: dict[str, str] = {}
    """What only the server knows of its attributes."""


class ResourceKind(ABC):
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

    members: Mapping[str, Read]
    """What reads each property."""

    @abstractmethod
    def attributes(
        self, name: str, properties: dict[str, Any], place: Destination
    ) -> dict[str, str]:
        """`Ref`, and by its name each attribute; as they will be, where it is not there yet."""

    @abstractmethod
    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        """How it is; None where there is none. `properties` find it where it has no name."""

    @abstractmethod
    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None: ...

    @abstractmethod
    def update(
        self, aws: Aws, live: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        """Make it `after`; what was begun before may be done again."""

    @abstractmethod
    def delete(self, aws: Aws, name: str) -> str | None:
        """Ask for it to go; none there is well. A sentence where it is kept after all."""

    def read(self, logical_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """The properties as the API takes them; raises Invalid in CloudFormation's words."""
        try:
            return self.check(structure(self.members, self.required)(given, "#"))
        except Invalid as error:
            raise Invalid(
                f"Properties validation failed for resource {logical_id} ({self.type}) with "
                f"message: {error}"
            ) from None

    def check(self, properties: dict[str, Any]) -> dict[str, Any]:
        """The same, if what has to hold between them does; raises Invalid."""
        return properties

    def is_fixed(self, member: str) -> bool:
        """Whether it needs another resource to change this property."""
        return member != "Tags" if self.fixed is None else member in self.fixed

    def identity(self, properties: dict[str, Any]) -> dict[str, Any]:
        """What cannot change, but for the name."""
        return {
            name: value
            for name, value in properties.items()
            if self.is_fixed(name) and name != self.name_property
        }


def comparable(properties: dict[str, Any]) -> dict[str, Any]:
    """The same, with tags as a mapping: they have no order."""
    tags = properties.get("Tags")
    if not isinstance(tags, list):
        return properties
    return {**properties, "Tags": {one["Key"]: one["Value"] for one in tags}}


def tag_changes(
    live: ActualState, before: dict[str, Any], after: dict[str, Any]
) -> tuple[list[dict[str, str]], list[str]]:
    """The tags to be set, and the keys of those to go: what others have put there stays."""
    there = {one["Key"]: one for one in live.properties.get("Tags", [])}
    wanted = {one["Key"]: one for one in after.get("Tags", [])}
    changed = [tag for key, tag in wanted.items() if there.get(key) != tag]
    ours = [one["Key"] for one in before.get("Tags", [])]
    return changed, [key for key in ours if key in there and key not in wanted]
