"""Requests as clients of AWS send them for each operation of each served service; the forms of
them that could be read in two ways; and their signatures, right and wrong."""

import functools
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from botocore.auth import (
    HmacV1QueryAuth,
    S3SigV4Auth,
    S3SigV4QueryAuth,
    SigV4Auth,
    SigV4QueryAuth,
)
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sagehen.wire.http import Request
from sagehen.wire.services import CBOR, PROTOCOLS, SERVED, service
from support.oracle import client_model, sent_by_client

__all__ = [
    "KEY",
    "NOW",
    "REGION",
    "SECRET",
    "SPOKEN",
    "Base",
    "Forged",
    "Sent",
    "StillClock",
    "ambiguous",
    "ask",
    "bases",
    "linked",
    "signed",
    "unsigned",
    "wrongly_signed",
]

KEY, SECRET, REGION = "AKSHFORGED", "a-secret", "us-east-1"
NOW = 1_793_525_400.0
HOST = "127.0.0.1:9000"

SPOKEN = [(name, protocol) for name in SERVED for protocol in PROTOCOLS.get(name, (None,))]
"""Every served service in each of its protocols; None for the only one."""

_LINK = "ConfirmSubscription"
_SPELLINGS = ("Action", "action", "%41ction", "ACTION", "+Action")


class StillClock:
    """Stands still, so that a signature stays good for as long as requests are made of it."""

    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("Nothing here waits.")


@dataclass(frozen=True)
class Sent:
    """A request as it goes over the wire: headers may come more than once."""

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def request(self) -> Request:
        return Request(self.method, self.path, self.query, dict(self.headers), self.body)

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        return [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers]

    def but(self, *headers: tuple[str, str], **changes: Any) -> "Sent":
        """The same with `changes`, and `headers` added."""
        return replace(self, headers=(*changes.pop("headers", self.headers), *headers), **changes)

    def without(self, *names: str) -> tuple[tuple[str, str], ...]:
        return tuple(one for one in self.headers if one[0].lower() not in names)


@dataclass(frozen=True)
class Base:
    """An operation's plain request, and whom it is signed for."""

    service: str
    operation: str
    protocol: str
    signing_name: str
    sent: Sent
    decoy: str
    """Another operation of the service, that the request may be made to name as well."""


@dataclass(frozen=True)
class Forged:
    how: str
    sent: Sent


def bases(name: str, spoken: str | None) -> list[Base]:
    """The plain request of every operation of a service."""
    model = service(name, spoken)
    names = sorted(model.operation_names)
    made = []
    for number, operation in enumerate(names):
        if name == "sqs" and operation not in client_model("sqs", spoken).operation_names:
            continue
        decoy = names[number - 1] if len(names) > 1 else operation
        signing_name = str(model.signing_name)
        sent = _plain(name, operation, spoken)
        made.append(Base(name, operation, model.protocol, signing_name, sent, decoy))
    return made


@functools.lru_cache(4096)
def _plain(name: str, operation: str, spoken: str | None) -> Sent:
    shape = client_model(name, spoken).operation_model(operation).input_shape
    params = _least(shape, ()) if shape else {}
    if operation == "InvokeEndpointAsync":
        params["InputLocation"] = "s3://bucket/key"
    request = sent_by_client(name, operation, params, spoken)
    path, headers = request.raw_path, request.headers
    # What the models of S3's client leave to its endpoint rules.
    if name == "s3" and shape and "Bucket" in shape.required_members and "bucket" not in path:
        path = f"/bucket{path if path != '/' else ''}"
    return Sent(request.method, path, request.raw_query, tuple(headers.items()), request.body)


def _least(shape: Any, above: tuple[str, ...]) -> Any:
    """The least that has a shape's type: its required members, and a text for each string."""
    kind = shape.type_name
    if kind == "structure":
        members = shape.required_members
        if shape.is_tagged_union:
            members = sorted(shape.members)[:1]
        below = (*above, shape.name)
        return {
            one: _least(shape.members[one], below) for one in members if above.count(shape.name) < 2
        }
    if kind == "list":
        return [] if above.count(shape.member.name) > 1 else [_least(shape.member, above)]
    if kind == "map":
        return {"a": _least(shape.value, above)}
    if kind == "string":
        names = {"BucketName": "bucket", "ObjectKey": "key", "EndpointName": "e"}
        return shape.enum[0] if shape.enum else names.get(shape.name, "a")
    return {"blob": b"a", "boolean": True, "timestamp": datetime.fromtimestamp(NOW, UTC)}.get(
        kind, 1
    )


# Forms that could be read in two ways


def ambiguous(base: Base) -> Iterator[Forged]:
    """The request so that one reader may take it for the operation, and another for its decoy."""
    if base.protocol == "query":
        yield from _two_actions(base)
        yield Forged("target beside action", base.sent.but(("X-Amz-Target", f"X.{base.decoy}")))
        for version in ("Version", "version"):
            more = f"{base.sent.body.decode()}&{version}=2010-01-01"
            yield Forged("two versions", base.sent.but(body=more.encode()))
            yield Forged("versions in both", base.sent.but(query=f"{version}=2010-01-01"))
    elif base.protocol == CBOR:
        target = f"{base.sent.path.split('/')[2]}.{base.decoy}"
        yield Forged("path and target", base.sent.but(("X-Amz-Target", target)))
        yield from _beside_an_action(base)
    elif base.protocol == "json":
        yield from _two_targets(base)
        yield from _beside_an_action(base)


def linked(base: Base) -> Iterator[Forged]:
    """The operation behind a link of SNS that may be followed unsigned."""
    given = base.sent.body.decode("latin-1") if base.protocol == "query" else ""
    rest = given.replace(f"Action={base.operation}&", "")
    for name in _SPELLINGS:
        for link in (_LINK, "Unsubscribe"):
            first = f"Action={link}&{name}={base.operation}&{rest}"
            last = f"{name}={base.operation}&Action={link}&{rest}"
            for query in (first, last):
                yield Forged(f"link and {name}", Sent("GET", "/", query, (("Host", HOST),)))
    followed = Sent("GET", "/", f"Action={_LINK}&{rest}", (("Host", HOST),))
    if base.protocol == "query":
        kind = ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
        length = ("Content-Length", str(len(base.sent.body)))
        yield Forged("link with a body", followed.but(kind, length, body=base.sent.body))
        yield Forged("link posted", followed.but(kind, length, body=base.sent.body, method="POST"))
    for header in base.sent.headers:
        if header[0].lower() == "x-amz-target":
            yield Forged("link with a target", followed.but(header))
    if (base.sent.method, base.sent.path) != ("GET", "/"):
        yield Forged(
            "link at its path", replace(followed, path=base.sent.path, method=base.sent.method)
        )


def _two_actions(base: Base) -> Iterator[Forged]:
    body = base.sent.body.decode("latin-1")
    action = f"Action={base.operation}"
    for name in _SPELLINGS:
        decoy = f"{name}={base.decoy}"
        for how, in_body, in_query in (
            ("in the body, last", f"{body}&{decoy}", ""),
            ("in the body, first", f"{decoy}&{body}", ""),
            ("in both", body, decoy),
            ("in both, the other way", body.replace(action, decoy), action),
            ("in the query, last", "", f"{body}&{decoy}"),
            ("in the query, first", "", f"{decoy}&{body}"),
        ):
            changed = base.sent.but(body=in_body.encode(), query=in_query)
            yield Forged(f"{name} twice {how}", changed)
            if not in_body:
                headers = base.sent.without("content-type", "content-length")
                yield Forged(f"{name} twice {how}, GET", changed.but(method="GET", headers=headers))


def _two_targets(base: Base) -> Iterator[Forged]:
    target = dict(base.sent.headers)["x-amz-target"]
    decoy = target.replace(base.operation, base.decoy)
    others = base.sent.without("x-amz-target")
    for first, last in ((target, decoy), (decoy, target), (target, target)):
        for one, two in (
            ("X-Amz-Target", "X-Amz-Target"),
            ("X-Amz-Target", "x-amz-target"),
            ("X-Amz-Target", "X_Amz_Target"),
        ):
            both = base.sent.but((one, first), (two, last), headers=others)
            yield Forged(f"{one} and {two}", both)
    yield Forged(
        "a list of targets", base.sent.but(("X-Amz-Target", f"{target},{decoy}"), headers=others)
    )
    path = f"/service/{target.partition('.')[0]}/operation/{base.decoy}"
    yield Forged("target and path", base.sent.but(path=path))


def _beside_an_action(base: Base) -> Iterator[Forged]:
    for name in _SPELLINGS:
        for value in (base.decoy, base.operation, _LINK):
            yield Forged(f"{name} in the query", base.sent.but(query=f"{name}={value}"))
    form = ("Content-Type", "application/x-www-form-urlencoded")
    body = f"Action={base.decoy}".encode()
    yield Forged(
        "a form beside it",
        base.sent.but(form, headers=base.sent.without("content-type"), body=body),
    )


# Signatures


def signed(
    sent: Sent,
    name: str,
    how: str = "header",
    secret: str = SECRET,
    now: float = NOW,
    host: str = HOST,
    key: str = KEY,
) -> Sent:
    """The request as botocore signs it, in a header, as a link or (S3) as a link of old.

    A link has what was in the body of a form; other bodies it has none, but for S3's.
    """
    body = sent.body
    if how == "link":
        headers = sent.without("content-type")
        if any("form-urlencoded" in value for _, value in sent.headers):
            query = "&".join(filter(None, (body.decode("latin-1"), sent.query)))
            sent, body = sent.but(method="GET", query=query, headers=headers), b""
        sent, body = sent.but(body=b""), body if name == "s3" else b""
    url = f"http://{host}{sent.path}" + (f"?{sent.query}" if sent.query else "")
    request = AWSRequest(sent.method, url, data=sent.body)
    for header, value in sent.headers:
        if header.lower() not in ("host", "content-length"):
            request.headers.add_header(header, value)
    if how == "old link":
        # Its seconds count from today's: from the clock that stands still they are good for longer.
        bucket = sent.path if sent.path.count("/") > 1 else f"{sent.path}/"
        request.auth_path = "/" if sent.path == "/" else bucket
        HmacV1QueryAuth(Credentials(key, secret), 10**8).add_auth(request)
        parts = urlsplit(request.url)
        return Sent(sent.method, parts.path, parts.query, (("Host", host),), sent.body)
    signer = _signer(name, how, Credentials(key, secret))
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    signer._modify_request_before_signing(request)
    canonical = signer.canonical_request(request)
    to_sign = signer.string_to_sign(request, canonical)
    signer._inject_signature_to_request(request, signer.signature(to_sign, request))
    parts = urlsplit(request.url)
    headers = [("Host", host), *request.headers.items(), ("Content-Length", str(len(body)))]
    return Sent(sent.method, parts.path or "/", parts.query, tuple(headers), body)


def _signer(name: str, how: str, credentials: Credentials) -> Any:
    if how == "link":
        return (_S3Link if name == "s3" else _Link)(credentials, name, REGION, expires=900)
    return (S3SigV4Auth if name == "s3" else SigV4Auth)(credentials, name, REGION)


class _Link(SigV4QueryAuth):  # type: ignore[misc]
    """Leaves the query as it is, where botocore's own drops what comes twice."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        own = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": self.scope(request),
            "X-Amz-Date": request.context["timestamp"],
            "X-Amz-Expires": str(self._expires),
            "X-Amz-SignedHeaders": self.signed_headers(self.headers_to_sign(request)),
        }
        request.url += ("&" if "?" in request.url else "?") + urlencode(own)


class _S3Link(_Link, S3SigV4QueryAuth):  # type: ignore[misc]
    pass


def unsigned(sent: Sent) -> Sent:
    length = str(len(sent.body))
    return sent.but(
        ("Host", HOST), ("Content-Length", length), headers=sent.without("host", "content-length")
    )


def wrongly_signed(right: Sent, link: Sent, guessed: Sent) -> Iterator[Forged]:
    """What is not signed, though it looks so.

    Args:
        right: signed by a header.
        link: signed by its query.
        guessed: signed with another secret.
    """
    yield Forged("by another secret", guessed)
    authorization = dict(right.headers)["Authorization"]
    others = right.without("authorization")

    def by(how: str, value: str) -> Forged:
        return Forged(how, right.but(("Authorization", value), headers=others))

    digit = "0" if authorization[-1] != "0" else "1"
    yield by("one digit", authorization[:-1] + digit)
    yield by("no signature", authorization.partition("Signature=")[0] + "Signature=")
    yield by("another key", authorization.replace("Credential=", "Credential=X"))
    yield by("another region", authorization.replace(REGION, "eu-west-1"))
    yield by("another day", authorization.replace("/20", "/21", 1))
    yield by("the host left out", authorization.replace("host;", ""))
    yield by("twice", f"{authorization[:-1]}{digit},{authorization}")
    yield by("of old", f"AWS {KEY}:{quote('c2ln')}")
    yield Forged("both ways", replace(link, headers=right.headers))
    query = link.query
    digit = "0" if query[-1] != "0" else "1"
    old = "Expires=9999999999&AWSAccessKey"
    for how, changed in (
        ("link, one digit", query[:-1] + digit),
        ("link, no signature", query.rpartition("&X-Amz-Signature=")[0]),
        ("link, encoded names", query.replace("X-Amz-", "X-%41mz-")[:-1] + digit),
        ("link, its own term", query.replace("X-Amz-Expires=900", "X-Amz-Expires=901")),
        ("link, small letters", query.replace("X-Amz-", "x-amz-")),
        ("link, twice", f"X-Amz-Signature={'0' * 64}&{query}"),
        ("link of old", f"{old}Id={KEY}&Signature=c2ln"),
        ("link of old, encoded", f"{old}%49d={KEY}&%53ignature=c2ln"),
    ):
        yield Forged(how, link.but(query=changed))


# Over a socket


def ask(host: str, sent: Sent) -> tuple[int, bytes]:
    """The status and the body that a server answers with, on a connection of its own; 0 where it
    says nothing."""
    name, _, port = host.partition(":")
    length = ("Content-Length", str(len(sent.body)))
    fields = (*sent.without("content-length"), length, ("Connection", "close"))
    lines = "".join(f"{header}: {value}\r\n" for header, value in fields)
    target = f"{sent.path}?{sent.query}".removesuffix("?")
    head = f"{sent.method} {target} HTTP/1.1\r\n{lines}\r\n"
    with socket.create_connection((name, int(port)), 30) as connection:
        received = b""
        with suppress(ConnectionError):  # It may refuse before all is sent.
            connection.sendall(head.encode("latin-1") + sent.body)
        with suppress(ConnectionError):
            while piece := connection.recv(65_536):
                received += piece
    status, _, body = received.partition(b"\r\n\r\n")
    return (int(status[9:12]), body) if status else (0, b"")
