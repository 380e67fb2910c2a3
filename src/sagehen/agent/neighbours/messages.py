"""Messages between the agents of a cluster about artifacts."""

import msgspec

__all__ = ["ArtifactState", "HeldArtifacts", "Holders", "Source", "SourceRequest"]


class SourceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A node's question where to fetch an artifact, which it fetches now."""

    url: str
    """of the model data"""
    name: str
    """of the artifact: a digest of the URL and the version"""
    node_id: str
    gone: tuple[str, ...] = ()
    """nodes that turned out not to have it"""
    avoid: tuple[str, ...] = ()
    """nodes from which it could not be fetched"""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str | None
    """None: the object store"""


class Holders(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that have fetched model data of a URL, or are fetching it."""

    nodes: tuple[str, ...]


class HeldArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """The artifacts that a node has on disk."""

    node_id: str
    artifacts: tuple[tuple[str, str], ...]
    """URL and name of each"""


class ArtifactState(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer about an artifact of its own."""

    digest: str | None = None
    """of the stream of its content; None: the node is fetching it"""
    waits_for: tuple[str, ...] = ()
    """the node from which it fetches it, the one from which that one does, and so on"""
    received_bytes: int | None = None
    """what the node at the end of these has read of it from the store; None if that has ended, or
    is not known"""
