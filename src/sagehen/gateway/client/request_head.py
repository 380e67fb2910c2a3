"""Rejects request heads that are too large or ambiguous."""

from sagehen.gateway.admission.errors import bad_http
from sagehen.gateway.client.exchange import Exchange
from sagehen.wire.errors import AwsError

__all__ = ["endless", "fault_in", "passed_bound"]

# AWS SDKs stay far below these bounds.
MAX_TARGET_BYTES = 16 * 1024
MAX_HEADERS = 128


def fault_in(exchange: Exchange, version: str, upgrades: bool) -> AwsError | None:
    """`upgrades`: the request offers another protocol."""
    fault = _not_understood(exchange)
    if fault is None:
        fault = _not_of_1_1(exchange) if version == "1.1" else _not_of_1_0(exchange, version)
    if upgrades and fault is None:
        fault = _not_to_upgrade(exchange)
    return fault


def passed_bound(exchange: Exchange, received_bytes: int, most_bytes: int) -> AwsError | None:
    """`received_bytes`: an upper bound of the head's size, cheap to know."""
    if len(exchange.headers) > MAX_HEADERS:
        return bad_http(f"A request may have {MAX_HEADERS} header fields at most.", 431)
    if len(exchange.target) > MAX_TARGET_BYTES:
        return _target_too_long()
    if received_bytes > most_bytes and _size(exchange) > most_bytes:
        return _too_large(most_bytes)
    return None


def endless(target: bytes, most_bytes: int) -> AwsError:
    """`target`: the URL as far as received."""
    return _target_too_long() if len(target) > MAX_TARGET_BYTES else _too_large(most_bytes)


def _size(exchange: Exchange) -> int:
    fields = sum(len(name) + len(value) + len(": \r\n") for name, value in exchange.headers)
    return len(exchange.target) + fields


def _target_too_long() -> AwsError:
    return bad_http(f"A request's URL may have {MAX_TARGET_BYTES} bytes at most.", 414)


def _too_large(most_bytes: int) -> AwsError:
    return bad_http(f"A request's head may have {most_bytes} bytes at most (max_head_bytes).", 431)


def _not_understood(exchange: Exchange) -> AwsError | None:
    if not exchange.target.startswith(b"/"):
        return bad_http("The request's target must be a path that begins with a slash.")
    if b"#" in exchange.target:
        # Control's server would cut the URL off there.
        return bad_http("The request's target has a `#`, which belongs encoded: %23.")
    coding = exchange.fields.get("transfer-encoding")
    # Other codings would be relayed as content. The parser rejects Transfer-Encoding with
    # Content-Length.
    if coding is not None and coding.strip().lower() != "chunked":
        return bad_http("The only Transfer-Encoding understood is `chunked`, once.", 501)
    return None


def _not_of_1_1(exchange: Exchange) -> AwsError | None:
    host = exchange.fields.get("host")
    if host is None:
        return bad_http("A request of HTTP/1.1 needs a Host header.")
    if "," in host and sum(name.lower() == b"host" for name, _ in exchange.headers) > 1:
        return bad_http("A request has one Host header.")
    return None


def _not_of_1_0(exchange: Exchange, version: str) -> AwsError | None:
    if version != "1.0":
        return bad_http("This server speaks HTTP/1.1, and HTTP/1.0 if it must.", 505)
    if "transfer-encoding" in exchange.fields:
        # A proxy that relayed this as HTTP/1.0 may see another end.
        return bad_http("A request of HTTP/1.0 cannot have a Transfer-Encoding.")
    return None


def _not_to_upgrade(exchange: Exchange) -> AwsError | None:
    if exchange.method == b"CONNECT":
        return bad_http("This server is no proxy: CONNECT is not understood.", 501)
    if exchange.has_body:
        # The parser takes what follows for the other protocol: the body would never arrive.
        return bad_http(
            "A request with a body cannot offer to change the protocol. Leave out the Upgrade "
            "header: this server speaks HTTP/1.1 only."
        )
    return None
