"""Events, and the rules that send them on."""

from sqlalchemy import Connection

from sagehen.domain.events import Event

__all__ = ["put_event"]


def put_event(connection: Connection, event: Event) -> None:
    """Have an event sent to the targets of every enabled rule that matches it.

    It is on its way when the caller's transaction is on disk, and never was when that is not.
    """
