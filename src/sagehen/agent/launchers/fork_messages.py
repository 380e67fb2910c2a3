"""Messages between the agent and its fork servers."""

import msgspec

__all__ = ["ForkRequest", "Ready", "StartRefused"]


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A container, as a `LaunchPlan` has it."""

    options: list[str]
    """of `become_container`"""
    folder: str
    variables: list[tuple[str, str]]
    search: list[str]
    """the first folders of `sys.path`, after the working folder"""
    umask: int
    """negative: the fork server's"""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fork server takes requests."""

    search: list[str]
    """its `sys.path`"""


class StartRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fork server cannot fork containers, and has ended."""

    reason: str
