"""Operations shared by connections and API destinations."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.errors import existing, missing, over_limit
from sagehen.services.messaging.events.records import EventResource
from sagehen.services.messaging.events.resource_store import EventResources

__all__ = ["Check", "EventResourceKind"]

MAX_RESOURCES = 3000
"""EventBridge's quota per kind"""

Check = Callable[[Connection, dict[str, Any]], None]
"""raises AwsError for an invalid definition"""


@dataclass(frozen=True)
class EventResourceKind:
    """Its methods raise AwsError; each but `get` is a transaction."""

    records: EventResources
    name: str
    """in messages: `ApiDestination`"""
    in_arn: str
    """`api-destination`"""
    subject: str
    """starts messages: `An api-destination`"""
    plural: str
    """`API destinations`"""
    check: Check

    def create(self, call: RequestContext, name: str, definition: dict[str, Any]) -> EventResource:
        now = call.clock.now()
        record = EventResource(
            name=name,
            arn=call.arns.event_resource(self.in_arn, name, str(uuid.uuid4())),
            definition=definition,
            created_at=now,
            modified_at=now,
        )
        with call.database.write() as connection:
            self.check(connection, definition)
            if self.records.count(connection) >= MAX_RESOURCES:
                raise over_limit(
                    f"There are {MAX_RESOURCES} {self.plural}, as many as there may be."
                )
            if not self.records.insert(connection, record):
                raise existing(self.name, name)
        return record

    def update(self, call: RequestContext, params: dict[str, Any]) -> EventResource:
        members = {key: value for key, value in params.items() if key != "Name"}
        with call.database.write() as connection:
            before = self.get(connection, params["Name"], lock=True)
            definition = {**before.definition, **members}
            self.check(connection, definition)
            now = call.clock.now()
            record = msgspec.structs.replace(before, definition=definition, modified_at=now)
            self.records.update(connection, record)
        return record

    def read(self, call: RequestContext, name: str) -> EventResource:
        with call.database.read() as connection:
            record = self.records.get(connection, name)
        if record is None:
            raise missing(f"Failed to describe the {self.in_arn}(s). {self.subject} '{name}'")
        return record

    def drop(self, call: RequestContext, name: str) -> EventResource:
        with call.database.write() as connection:
            record = self.get(connection, name, lock=True)
            self.records.delete(connection, name)
        return record

    def get(self, connection: Connection, name: str, lock: bool = False) -> EventResource:
        """Reads within the caller's transaction."""
        record = self.records.get(connection, name, lock)
        if record is None:
            raise missing(f"{self.subject} '{name}'")
        return record
