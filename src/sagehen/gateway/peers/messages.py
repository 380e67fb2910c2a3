"""The frames that only gateways of a cluster send to each other. docs/reference/link.md specifies
them."""

from typing import Any, NamedTuple

import msgspec

from sagehen.link.frames import INLINE_BYTES, LinkError
from sagehen.wire.errors import AwsError

__all__ = [
    "CLUSTER_VERSION",
    "Failure",
    "PeerRequestHead",
    "PeerRoute",
    "decode_failure",
    "decode_head",
    "decode_route",
    "encode_failure",
    "encode_head",
]

CLUSTER_VERSION = 1
"""of the frames that only gateways send each other"""
_MAX_CUT_MESSAGE = 8 * 1024
"""characters of each text in a failure that would not fit into a frame"""
_NONE = b"-"


class PeerRoute(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queue that a route's number stands for, on one link."""

    endpoint: str
    variant: str
    container: str = ""
    """that is invoked directly"""
    shadow: bool = False


class PeerRequestHead(NamedTuple):
    """Names the instances that a request, or a reservation, may use."""

    route: int
    reservation: int
    """whose slot the request uses; 0: none"""
    age_microseconds: int
    instance_id: str
    """the only one that may answer; empty: any"""
    target_model: str | None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a node cannot answer a request."""

    is_begun: bool = True
    """False: another node may try"""
    load_failure: str | None = None
    """why the target model cannot be loaded there"""
    model_status: int = 0
    """of the container, if the error is its own"""
    code: str = ""
    message: str = ""
    status: int | None = None
    members: dict[str, Any] = {}

    @property
    def error(self) -> AwsError:
        return AwsError(self.code, self.message, self.status, **self.members)


def encode_head(
    route: int, reservation: int, age_seconds: float, instance_id: str, target_model: str | None
) -> bytes:
    # The model comes last: its name may hold spaces, but no line breaks.
    return b"%d %d %d %b %b" % (
        route,
        reservation,
        max(0, int(age_seconds * 1e6)),
        instance_id.encode() or _NONE,
        b"" if target_model is None else b"=" + target_model.encode(),
    )


def decode_head(head: bytes) -> PeerRequestHead:
    """Raises LinkError."""
    try:
        route, reservation, age, instance_id, model = head.split(b" ", 4)
        return PeerRequestHead(
            int(route),
            int(reservation),
            int(age),
            "" if instance_id == _NONE else instance_id.decode(),
            model[1:].decode() if model else None,
        )
    except ValueError as error:
        raise LinkError(f"The head of a request is {head[:200]!r}.") from error


def decode_route(body: bytes) -> PeerRoute:
    """Raises LinkError."""
    try:
        return msgspec.json.decode(body, type=PeerRoute)
    except ValueError as error:
        raise LinkError(f"A route cannot be read: {error}") from error


def encode_failure(failure: Failure) -> bytes:
    body = msgspec.json.encode(failure)
    if len(body) <= INLINE_BYTES:
        return body
    cut = {
        name: value[:_MAX_CUT_MESSAGE] if isinstance(value, str) else value
        for name, value in failure.members.items()
    }
    message = failure.message[:_MAX_CUT_MESSAGE]
    return msgspec.json.encode(msgspec.structs.replace(failure, message=message, members=cut))


def decode_failure(body: bytes) -> Failure:
    """Raises LinkError."""
    try:
        return msgspec.json.decode(body, type=Failure)
    except ValueError as error:
        raise LinkError(f"A failure cannot be read: {error}") from error
