"""Reads, claims and writes a stack's record on the server."""

import getpass
import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from sagehen.apply.client import Aws
from sagehen.apply.hidden import has_plain, is_equal, masked
from sagehen.base.errors import Conflict, Invalid, NotFound, SagehenError

__all__ = [
    "CLAIM_SECONDS",
    "Journal",
    "Phase",
    "Stack",
    "StackContent",
    "StackResource",
    "claimed",
    "load_stack",
]

Phase = Literal["creating", "ready", "updating"]
"""written before and after each step; the next run finishes a step whose phase is not `ready`"""


class StackResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource in the record."""

    logical_id: str
    type: str
    name: str
    """empty until the server has chosen it"""
    properties: dict[str, Any]
    attributes: dict[str, str] = {}
    """Ref and Fn::GetAtt"""
    needs: tuple[str, ...] = ()
    """logical ids"""
    deletion_policy: str = "Delete"
    hidden: tuple[str, ...] = ()
    """paths of NoEcho values; markers on the server (`hidden.py`)"""
    phase: Phase = "ready"


class StackContent(msgspec.Struct, frozen=True, kw_only=True):
    resources: dict[str, StackResource] = {}
    """by logical id"""
    leftovers: tuple[StackResource, ...] = ()
    """replaced; deleted at the end"""
    outputs: dict[str, str] = {}
    """NoEcho values as markers"""

    @property
    def has_plain(self) -> bool:
        records = (*self.resources.values(), *self.leftovers)
        return any(has_plain(record.properties, record.hidden) for record in records)

    def masked(self) -> "StackContent":
        resources = {name: _masked(record) for name, record in self.resources.items()}
        leftovers = tuple(map(_masked, self.leftovers))
        return msgspec.structs.replace(self, resources=resources, leftovers=leftovers)


def _masked(record: StackResource) -> StackResource:
    if not record.hidden:
        return record
    return msgspec.structs.replace(record, properties=masked(record.properties, record.hidden))


CLAIM_SECONDS = 60.0
_RENEW_SECONDS = 15.0
_AT = "stacks"


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """A stack as it was read."""

    name: str
    version: int = 0
    """0: no such stack"""
    content: StackContent = StackContent()
    holder: str = ""
    """of the claim, perhaps another run's"""


def load_stack(aws: Aws, name: str) -> Stack:
    """Reads a stack.

    Raises Invalid if the record is unreadable or the keys are wrong, Unavailable if the server does
    not answer.
    """
    try:
        answer = aws.own("GET", _AT, name)
    except NotFound as error:
        if "no stack" not in str(error):
            raise Invalid(f"The server at {aws.url} keeps no stacks: {error}") from error
        return Stack(name=name)
    try:
        content = msgspec.convert(answer["content"], StackContent)
    except msgspec.ValidationError as error:
        raise Invalid(f"The record of the stack {name} cannot be read: {error}") from error
    claim = answer["claim"] or {}
    return Stack(
        name=name, version=answer["version"], content=content, holder=claim.get("holder", "")
    )


class Journal:
    """Writes a stack's record; holds what the server has."""

    def __init__(self, aws: Aws, stack: Stack) -> None:
        self._aws = aws
        self._stack = stack
        self._holder = f"{_machine()}:{os.getpid()}:{_started(os.getpid())}:{uuid.uuid4().hex}"
        self._written_at = 0.0
        self.content = stack.content

    def write(self, content: StackContent) -> None:
        """Raises Conflict if another run holds the claim or wrote the record."""
        self._put(content, CLAIM_SECONDS)

    def keep(self, record: StackResource) -> None:
        content = self._without(record)
        resources = {**content.resources, record.logical_id: record}
        self.write(msgspec.structs.replace(content, resources=resources))

    def forget(self, record: StackResource) -> None:
        self.write(self._without(record))

    def set_aside(self, record: StackResource, retained: bool) -> None:
        """Makes a resource a leftover, with the next write."""
        policy = "Retain" if retained else "Delete"
        old = msgspec.structs.replace(record, deletion_policy=policy)
        content = self._without(record)
        self.content = msgspec.structs.replace(content, leftovers=(*content.leftovers, old))

    def beat(self) -> None:
        if time.monotonic() - self._written_at > _RENEW_SECONDS:
            self.write(self.content)

    def close(self) -> None:
        """Releases the claim; deletes an empty stack's record."""
        if self.content.resources or self.content.leftovers:
            self._put(self.content, 0)
            return
        query = {"version": str(self._stack.version), "holder": self._holder}
        with suppress(NotFound):
            self._aws.own("DELETE", _AT, self._stack.name, query=query)

    def _without(self, record: StackResource) -> StackContent:
        return msgspec.structs.replace(
            self.content,
            resources={
                name: other
                for name, other in self.content.resources.items()
                if not _is_same_resource(other, record)
            },
            leftovers=tuple(
                other for other in self.content.leftovers if not _is_same_resource(other, record)
            ),
        )

    def _put(self, content: StackContent, claim_seconds: float) -> None:
        content = content.masked()
        over = self._stack.holder if _is_dead(self._stack.holder) else None
        body: dict[str, Any] = {
            "version": self._stack.version,
            "holder": self._holder,
            "who": f"{_user()}@{socket.gethostname()} (process {os.getpid()})",
            "claim_seconds": claim_seconds,
            "content": msgspec.to_builtins(content),
        }
        if over:
            body["over"] = over
        written = self._aws.own("PUT", _AT, self._stack.name, body=body)
        self._stack = msgspec.structs.replace(
            self._stack, version=written["version"], holder=self._holder
        )
        self._written_at = time.monotonic()
        self.content = content


@contextmanager
def claimed(aws: Aws, stack: Stack) -> Iterator[Journal]:
    """Claims a stack; releases the claim at the end, except after kill -9.

    Raises Conflict if another run holds the claim or has written the record since it was read.
    """
    journal = Journal(aws, stack)
    journal.write(stack.content)
    try:
        yield journal
    except Conflict:
        raise  # the claim may be another's
    except BaseException:
        with suppress(SagehenError):
            journal.close()
        raise
    journal.close()


def _is_same_resource(first: StackResource, second: StackResource) -> bool:
    if first.name or second.name:
        return (first.type, first.name) == (second.type, second.name)
    return first.type == second.type and is_equal(first.properties, second.properties)


def _is_dead(holder: str) -> bool:
    machine, _, rest = holder.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if machine != _machine() or not pid.isdigit():
        return False
    # Our process id in another run's claim: an earlier process had it.
    return int(pid) == os.getpid() or _started(int(pid)) != started


def _machine() -> str:
    """Identifies the machine, boot and pid namespace, within which a pid is unique."""
    try:
        since = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        since = namespace = ""
    named = f"{socket.gethostname()}{since}{namespace}"
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
