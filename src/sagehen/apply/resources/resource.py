"""The interface of a resource type."""

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
    """A resource as the server has it."""

    name: str
    """empty if only `with_name` can tell it"""
    properties: dict[str, Any]
    """may include defaults"""
    status: Status = READY
    reason: str = ""
    attributes: dict[str, str] = {}
    """attributes known only to the server"""


class ResourceKind(ABC):
    """A type of resource.

    `properties` are as `read` returns them; `name` is the API's name of the resource.
    """

    type: ClassVar[str]
    name_property: ClassVar[str | None] = None
    """None if the server chooses the name"""
    longest_name: ClassVar[int] = 63
    lower_names: ClassVar[bool] = False
    named_by_content: ClassVar[bool] = False
    """generated names change with fixed properties"""
    fixed: ClassVar[frozenset[str] | None] = frozenset()
    """changing these needs a replacement; None: all but Tags"""
    unseen: ClassVar[frozenset[str]] = frozenset()
    """not returned by the API"""
    required: ClassVar[tuple[str, ...]] = ()
    is_recorded_only: ClassVar[bool] = False
    """only the stack's record has it: nothing on the server"""

    members: Mapping[str, Read]

    @abstractmethod
    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        """Returns `Ref` and the attributes, predicted if the resource does not exist yet."""

    @abstractmethod
    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        """Returns None if absent; `properties` identify an unnamed resource.

        Changes nothing, since a dry run looks, too.
        """

    def with_name(self, aws: Aws, actual: ActualState) -> ActualState:
        """Returns the state with the name that `look` could not find; may change the resource."""
        return actual

    @abstractmethod
    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> str | None:
        """Returns the name if the server chose it."""

    @abstractmethod
    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        """Must be idempotent: an interrupted update is repeated."""

    @abstractmethod
    def delete(self, aws: Aws, name: str) -> str | None:
        """Requests deletion, also if absent; returns a reason if the resource is kept."""

    def read(self, logical_id: str, properties: dict[str, Any]) -> dict[str, Any]:
        """Converts to the API's form; raises Invalid in CloudFormation's words."""
        try:
            return self.check(structure(self.members, self.required)(properties, "#"))
        except Invalid as error:
            raise Invalid(
                f"Properties validation failed for resource {logical_id} ({self.type}) with "
                f"message: {error}"
            ) from None

    def check(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Checks combinations of properties; raises Invalid."""
        return properties

    def is_fixed(self, member: str) -> bool:
        """Tells whether a change of this property needs a replacement."""
        return member != "Tags" if self.fixed is None else member in self.fixed

    def identity(self, properties: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in properties.items()
            if self.is_fixed(name) and name != self.name_property
        }


def comparable(properties: dict[str, Any]) -> dict[str, Any]:
    """Makes tags a mapping, since their order has no meaning."""
    tags = properties.get("Tags")
    if not isinstance(tags, list):
        return properties
    return {**properties, "Tags": {tag["Key"]: tag["Value"] for tag in tags}}


def tag_changes(
    actual: ActualState, before: dict[str, Any], after: dict[str, Any]
) -> tuple[list[dict[str, str]], list[str]]:
    """Returns the tags to set and the keys to delete; leaves others' tags alone."""
    existing = {item["Key"]: item for item in actual.properties.get("Tags", [])}
    desired = {item["Key"]: item for item in after.get("Tags", [])}
    changed = [tag for key, tag in desired.items() if existing.get(key) != tag]
    own_keys = [item["Key"] for item in before.get("Tags", [])]
    return changed, [key for key in own_keys if key in existing and key not in desired]
