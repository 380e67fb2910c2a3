"""A stack's record on the server, claimed for one run and written before and after each step.

What a stack's record holds: the resources that were made, and what each was made of.
"""

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
"""Written before a step and after it: whoever finds another than `ready` finishes that step."""


class StackResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of the stack."""

    logical_id: str
    type: str
    name: str
    """What the API knows it by; empty where that is told only when it is made."""
    properties: dict[str, Any]
    attributes: dict[str, str] = {}
    """Ref, and what Fn::GetAtt is asked for."""
    needs: tuple[str, ...] = ()
    """The logical ids of those that had to be there before it."""
    deletion_policy: str = "Delete"
    hidden: tuple[str, ...] = ()
    """Where in its properties there is what parameters with NoEcho are, or is made of it. On the
    server there are markers in its place (`hidden.py`)."""
    phase: Phase = "ready"


class StackContent(msgspec.Struct, frozen=True, kw_only=True):
    resources: dict[str, StackResource] = {}
    """By logical id."""
    leftovers: tuple[StackResource, ...] = ()
    """Replaced, and to be deleted once all else has succeeded."""
    outputs: dict[str, str] = {}
    """Those that have something of a parameter with NoEcho are markers."""

    @property
    def has_plain(self) -> bool:
        """Whether a version before has written in clear what is to be hidden."""
        kept = (*self.resources.values(), *self.leftovers)
        return any(has_plain(one.properties, one.hidden) for one in kept)

    def masked(self) -> "StackContent":
        """The same, with markers for all that is to be hidden."""
        resources = {name: _masked(one) for name, one in self.resources.items()}
        leftovers = tuple(map(_masked, self.leftovers))
        return msgspec.structs.replace(self, resources=resources, leftovers=leftovers)


def _masked(kept: StackResource) -> StackResource:
    if not kept.hidden:
        return kept
    return msgspec.structs.replace(kept, properties=masked(kept.properties, kept.hidden))


CLAIM_SECONDS = 60.0
_RENEW_SECONDS = 15.0
_AT = "stacks"


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """A stack as it was read."""

    name: str
    version: int = 0
    """0: there is none."""
    content: StackContent = StackContent()
    holder: str = ""
    """Of the claim on it, whoever's it is."""


def load_stack(aws: Aws, name: str) -> Stack:
    """The stack of that name.

    Raises:
        Invalid: its record is none of ours; or the name or the keys are wrong.
        Unavailable: the server does not answer, or has no stacks.
    """
    try:
        found = aws.own("GET", _AT, name)
    except NotFound as error:
        if "no stack" not in str(error):
            raise Invalid(f"The server at {aws.url} keeps no stacks: {error}") from error
        return Stack(name=name)
    try:
        content = msgspec.convert(found["content"], StackContent)
    except msgspec.ValidationError as error:
        raise Invalid(f"The record of the stack {name} cannot be read: {error}") from error
    claim = found["claim"] or {}
    return Stack(
        name=name, version=found["version"], content=content, holder=claim.get("holder", "")
    )


class Journal:
    """Writes a stack's record; what it holds is what the server has."""

    def __init__(self, aws: Aws, stack: Stack) -> None:
        self._aws = aws
        self._stack = stack
        self._holder = f"{_machine()}:{os.getpid()}:{_started(os.getpid())}:{uuid.uuid4().hex}"
        self._written_at = 0.0
        self.content = stack.content

    def write(self, content: StackContent) -> None:
        """Raises Conflict where somebody else has it, or has written it."""
        self._put(content, CLAIM_SECONDS)

    def keep(self, kept: StackResource) -> None:
        """Write a resource, which is no leftover any more, nor under another logical id."""
        content = self._without(kept)
        resources = {**content.resources, kept.logical_id: kept}
        self.write(msgspec.structs.replace(content, resources=resources))

    def forget(self, kept: StackResource) -> None:
        """Write that a resource is gone, or that it is no concern of the stack any more."""
        self.write(self._without(kept))

    def set_aside(self, kept: StackResource, retained: bool) -> None:
        """Have a resource be a leftover, with the next write: its place is taken by another."""
        policy = "Retain" if retained else "Delete"
        old = msgspec.structs.replace(kept, deletion_policy=policy)
        content = self._without(kept)
        self.content = msgspec.structs.replace(content, leftovers=(*content.leftovers, old))

    def beat(self) -> None:
        """Keep the claim, while something takes long."""
        if time.monotonic() - self._written_at > _RENEW_SECONDS:
            self.write(self.content)

    def close(self) -> None:
        """Give the claim back; a stack of nothing is no stack."""
        if self.content.resources or self.content.leftovers:
            self._put(self.content, 0)
            return
        query = {"version": str(self._stack.version), "holder": self._holder}
        with suppress(NotFound):
            self._aws.own("DELETE", _AT, self._stack.name, query=query)

    def _without(self, kept: StackResource) -> StackContent:
        return msgspec.structs.replace(
            self.content,
            resources={
                name: one for name, one in self.content.resources.items() if not _is_one(one, kept)
            },
            leftovers=tuple(one for one in self.content.leftovers if not _is_one(one, kept)),
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
    """The stack for this run alone; given back however the block ends, but by kill -9.

    Raises:
        Conflict: somebody else works on it, or has written it since it was read.
    """
    journal = Journal(aws, stack)
    journal.write(stack.content)
    try:
        yield journal
    except Conflict:
        raise  # It may be another's by now.
    except BaseException:
        with suppress(SagehenError):
            journal.close()
        raise
    journal.close()


def _is_one(one: StackResource, other: StackResource) -> bool:
    """Whether both tell of the same resource."""
    if one.name or other.name:
        return (one.type, one.name) == (other.type, other.name)
    return one.type == other.type and is_equal(one.properties, other.properties)


def _is_dead(holder: str) -> bool:
    """Whether a run is known to have ended without giving its claim back."""
    machine, _, rest = holder.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if machine != _machine() or not pid.isdigit():
        return False
    # Our own number, but not this run: an earlier process had it.
    return int(pid) == os.getpid() or _started(int(pid)) != started


def _machine() -> str:
    """This machine since it was started, and whom a process number means there."""
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
