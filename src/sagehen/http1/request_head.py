"""Request heads: refuses what is too large or ambiguous, and knows again what was parsed before."""

from collections.abc import Mapping
from typing import NamedTuple

from sagehen.http1.exchange import Exchange, RequestFault
from sagehen.http1.fields import Headers, joined_raw_fields
from sagehen.http1.limits import MAX_PIECE_BYTES, ConnectionLimits

__all__ = [
    "MAX_HEADERS",
    "MAX_TARGET_BYTES",
    "KnownHead",
    "KnownHeads",
    "ambiguity",
    "endless",
    "excess",
    "head_of",
]

# Clients stay far below these bounds.
MAX_TARGET_BYTES = 16 * 1024
MAX_HEADERS = 128
_HASH = ord("#")

MAX_KNOWN_HEADS = 1024
MAX_HEADS_SEEN = 4096
MAX_KNOWN_HEAD_BYTES = 1024
_END = b"\r\n\r\n"


def ambiguity(exchange: Exchange, version: str, upgrades: bool) -> RequestFault | None:
    """Refuses what another server might read in another way (RFC 9112, 3 and 6).

    `upgrades`: the request offers another protocol.
    """
    fields, target = exchange.fields, exchange.target
    if (
        version == "1.1"
        and not upgrades
        and target[:1] == b"/"
        and _HASH not in target
        and "transfer-encoding" not in fields
        and "," not in fields.get("host", ",")
    ):
        return None  # as most requests
    fault = _target_or_coding_fault(exchange)
    if fault is None:
        fault = _fault_of_1_1(exchange) if version == "1.1" else _fault_of_1_0(exchange, version)
    if fault is None and upgrades:
        fault = _upgrade_fault(exchange)
    return fault


def excess(
    exchange: Exchange, received_bytes: int, limits: ConnectionLimits
) -> RequestFault | None:
    """`received_bytes`: an upper bound of the head's size, cheap to know."""
    if len(exchange.headers) > MAX_HEADERS:
        return _too_many_headers()
    if len(exchange.target) > MAX_TARGET_BYTES:
        return _target_too_long()
    if received_bytes > limits.head_bytes and _size(exchange) > limits.head_bytes:
        return _head_too_large(limits)
    return None


def endless(
    exchange: Exchange, in_head: bool, received_bytes: int, limits: ConnectionLimits
) -> RequestFault | None:
    """Refuses an unfinished head, or chunk sizes and trailers without any body between them.

    `received_bytes`: an upper bound of its size; a piece of another request may precede it.
    """
    if in_head and len(exchange.headers) > MAX_HEADERS:
        return _too_many_headers()
    if received_bytes <= limits.head_bytes + MAX_PIECE_BYTES:
        return None
    if in_head and len(exchange.target) > MAX_TARGET_BYTES:
        return _target_too_long()
    return _head_too_large(limits) if in_head else _framing_too_large(limits)


def _size(exchange: Exchange) -> int:
    fields = sum(len(name) + len(value) + len(": \r\n") for name, value in exchange.headers)
    return len(exchange.target) + fields


def _too_many_headers() -> RequestFault:
    return RequestFault(f"A request may have {MAX_HEADERS} header fields at most.", 431)


def _target_too_long() -> RequestFault:
    return RequestFault(f"A request's URL may have {MAX_TARGET_BYTES} bytes at most.", 414)


def _head_too_large(limits: ConnectionLimits) -> RequestFault:
    setting = f" ({limits.head_bytes_setting})" if limits.head_bytes_setting else ""
    return RequestFault(
        f"A request's head may have {limits.head_bytes} bytes at most{setting}.", 431
    )


def _framing_too_large(limits: ConnectionLimits) -> RequestFault:
    return RequestFault(
        f"A request's trailers and chunk sizes may have {limits.head_bytes} bytes at most, without "
        "any body between them.",
        431,
    )


def _target_or_coding_fault(exchange: Exchange) -> RequestFault | None:
    if not exchange.target.startswith(b"/"):
        return RequestFault("The request's target must be a path that begins with a slash.")
    if b"#" in exchange.target:
        # Another server would cut the URL off there.
        return RequestFault("The request's target has a `#`, which belongs encoded: %23.")
    coding = exchange.fields.get("transfer-encoding")
    # Other codings would be relayed as content. The parser refuses Transfer-Encoding with
    # Content-Length.
    if coding is not None and coding.strip().lower() != "chunked":
        return RequestFault("The only Transfer-Encoding understood is `chunked`, once.", 501)
    return None


def _fault_of_1_1(exchange: Exchange) -> RequestFault | None:
    host = exchange.fields.get("host")
    if host is None:
        return RequestFault("A request of HTTP/1.1 needs a Host header.")
    if "," in host and sum(name.lower() == b"host" for name, _ in exchange.headers) > 1:
        return RequestFault("A request has one Host header.")
    return None


def _fault_of_1_0(exchange: Exchange, version: str) -> RequestFault | None:
    if version != "1.0":
        return RequestFault("This server speaks HTTP/1.1, and HTTP/1.0 if it must.", 505)
    if "transfer-encoding" in exchange.fields:
        # A proxy that relayed this as HTTP/1.0 may see another end.
        return RequestFault("A request of HTTP/1.0 cannot have a Transfer-Encoding.")
    return None


def _upgrade_fault(exchange: Exchange) -> RequestFault | None:
    if exchange.method == b"CONNECT":
        return RequestFault("This server is no proxy: CONNECT is not understood.", 501)
    if exchange.has_body:
        # The parser takes what follows for the other protocol: the body would never arrive.
        return RequestFault(
            "A request with a body cannot offer to change the protocol. Leave out the Upgrade "
            "header: this server speaks HTTP/1.1 only."
        )
    return None


class KnownHead(NamedTuple):
    """A parsed head. All requests with this head share the object, so nobody may change it."""

    body_bytes: int
    method: bytes
    target: bytes
    headers: Headers
    fields: dict[str, str]
    raw_fields: Mapping[bytes, bytes]


def head_of(piece: bytes) -> bytes:
    """Returns the head that `piece` begins with, if it is whole and small; else any few bytes."""
    return piece[: piece.find(_END, 0, MAX_KNOWN_HEAD_BYTES) + len(_END)]


class KnownHeads:
    """A cache of heads by their exact bytes: equal bytes are read equally.

    Only plain heads are kept: of HTTP/1.1, with a body of known length that is sent without being
    asked for, not the last of a connection, and with no reason for a refusal.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self._seen: set[int] = set()
        """hashes"""
        self.find = self._heads.get

    def is_worth_learning(self, head: bytes) -> bool:
        """True from the second time on: some clients send another id with each request."""
        seen = hash(head)
        if seen in self._seen:
            # Those known stay known: clients may send more in turns than are kept.
            return len(self._heads) < MAX_KNOWN_HEADS
        if len(self._seen) >= MAX_HEADS_SEEN:
            self._seen.clear()
            self._heads.clear()
        self._seen.add(seen)
        return False

    def learn(self, head: bytes, exchange: Exchange) -> None:
        """`head` are the first bytes of a whole request, up to the first empty line."""
        if not _is_plain(head, exchange):
            return
        exchange.raw_fields = joined_raw_fields(exchange.headers)
        self._heads[head] = KnownHead(
            int(exchange.fields.get("content-length", 0)),
            exchange.method,
            exchange.target,
            exchange.headers,
            exchange.fields,
            exchange.raw_fields,
        )


def _is_plain(head: bytes, exchange: Exchange) -> bool:
    fields = exchange.fields
    return (
        exchange.keep_alive  # False for what is refused, too
        and not exchange.legacy
        and "transfer-encoding" not in fields
        and "expect" not in fields
        # Else the head that the parser read has another end.
        and head.endswith(_END)
        and head.count(b"\n") == len(exchange.headers) + 2
    )
