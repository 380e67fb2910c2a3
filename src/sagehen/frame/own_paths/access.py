"""Decides who may use the own paths, before a path's code runs.

Each path needs the account's keys (SigV4, service `execute-api`) or the token in the home's file
`token`, as `Authorization: Bearer …`; exceptions are in `UNSIGNED`.

Foreign web pages must not use unsigned paths through a browser on this machine. `Origin` and
`Sec-Fetch-Site` reveal them, except after DNS rebinding: so the name in `Host` must be ours too.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sagehen.base.errors import SagehenError
from sagehen.frame.asgi import BodyBudget, BodyTooLarge, ClientGone, request_head
from sagehen.frame.own_paths.routes import aws_refusal, json_answer, refusal
from sagehen.wire.errors import AwsError
from sagehen.wire.signatures.sigv4 import Verifier

__all__ = [
    "LARGEST_BODY_BYTES",
    "SIGNED_FOR",
    "UNSIGNED",
    "Access",
    "Guard",
    "Metrics",
    "OwnSite",
    "access_of",
    "is_loopback",
]

_OURS = ("same-origin", "none")
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]*)?")
"""all of a Host header: urlsplit would pass over user info, and text behind a bracket"""


class OwnSite:
    """The host names for unsigned requests: `localhost`, IP addresses, `public_url` and
    `allowed_hosts`."""

    def __init__(self, public_url: str | None = None, allowed_hosts: Iterable[str] = ()) -> None:
        names = [urlsplit(public_url).hostname] if public_url else []
        self._names = {"localhost", *filter(None, names), *(host.lower() for host in allowed_hosts)}

    def foreign_host(self, headers: Mapping[str, str]) -> str | None:
        """Returns why the Host is not this server's, if so. HTTP/1.0 may omit it; browsers never
        do."""
        host = headers.get("host")
        if host is None or self._is_ours(host):
            return None
        return (
            f"its Host {host[:128]} is a name that may have been made to lead here; use the "
            "address, or have the name in the setting allowed_hosts"
        )

    def foreign_page(self, headers: Mapping[str, str]) -> str | None:
        """Returns why the request comes from a foreign page, if so."""
        reason = self.foreign_host(headers)
        if reason is not None:
            return reason
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OURS:
            return f"its Sec-Fetch-Site is {site}"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
            return f"its Origin {origin} is not this server's"
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        return name in self._names or _address(name) is not None


def is_loopback(host: str) -> bool:
    """Takes a Host header or a listening address."""
    name = _name_in(host)
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _name_in(host: str) -> str:
    match = _HOST.fullmatch(host)
    if match is None:
        return ""
    return (match["name"] or match["address"]).lower().rstrip(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


SIGNED_FOR = "execute-api"
"""service in the credential scope, as for REST APIs with IAM"""
LARGEST_BODY_BYTES = 4 * 2**20
"""bytes, for any own path"""
_BEARER = "bearer "


class Access(Enum):
    """The proof that an own path requires of a request."""

    KEYS = "a signature, or the token"
    HEALTH = "nothing"
    PUBLIC = "a host name of this server"
    METRICS = "as KEYS, unless they are open: see Metrics"
    INTERNAL = "the Unix socket: no gateway lets anybody through"


UNSIGNED = {
    "/_sagehen/health": Access.HEALTH,
    "/_sagehen/metrics": Access.METRICS,
    "/_sagehen/sns/": Access.PUBLIC,
    "/_sagehen/internal/": Access.INTERNAL,
}
"""paths without keys; a final slash includes all below"""


def access_of(path: str) -> Access:
    """`path` is decoded."""
    if path in UNSIGNED:
        return UNSIGNED[path]
    for prefix, access in UNSIGNED.items():
        if prefix.endswith("/") and path.startswith(prefix):
            return access
    return Access.KEYS


@dataclass(frozen=True)
class Metrics:
    """Decides whether metrics are readable without keys."""

    listens_on: str
    open: bool
    """the setting `open_metrics`"""

    def are_open_to(self, headers: Mapping[str, str]) -> bool:
        if self.open:
            return True
        # A proxy on this machine asks for strangers, but each proxy adds headers.
        return (
            is_loopback(self.listens_on)
            and is_loopback(headers.get("host", ""))
            and headers.keys() <= _OF_READERS
        )


_OF_READERS = frozenset(
    (
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "content-length",
        "dnt",
        "host",
        "pragma",
        "priority",
        "sec-ch-ua",
        "sec-ch-ua-mobile",
        "sec-ch-ua-platform",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "sec-fetch-user",
        "upgrade-insecure-requests",
        "user-agent",
        "x-prometheus-scrape-timeout-seconds",
    )
)
"""headers that Prometheus, curl and browsers send, in lower case"""


class Guard:
    """The ASGI application in front of the own paths."""

    def __init__(
        self,
        own_paths: ASGIApp,
        verifier: Verifier,
        token: str,
        site: OwnSite,
        metrics: Metrics,
        bodies: BodyBudget,
    ) -> None:
        self._own_paths = own_paths
        self._verifier = verifier
        self._token = token
        self._site = site
        self._metrics = metrics
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope["path"])
        headers = request_head(scope).headers
        if access is Access.METRICS:
            access = Access.PUBLIC if self._metrics.are_open_to(headers) else Access.KEYS
        if access is Access.KEYS:
            await self._check_keys(scope, receive, send)
            return
        if access is Access.PUBLIC:
            reason = self._site.foreign_host(headers)
            if reason is not None:
                message = f"This is refused without a signature: {reason}."
                await json_answer({"message": message}, 403)(scope, receive, send)
                return
        await self._own_paths(scope, receive, send)

    async def _check_keys(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            head = request_head(scope)
            authorization = head.headers.get("authorization", "")
            bearer = (
                authorization[len(_BEARER) :]
                if authorization[: len(_BEARER)].lower() == _BEARER
                else None
            )
            if bearer is not None:
                self._check_token(bearer)
            else:
                self._verifier.check_head(head, SIGNED_FOR)
            async with self._bodies.read(receive, LARGEST_BODY_BYTES) as body:
                if bearer is None:
                    digest = hashlib.sha256(body).hexdigest()
                    self._verifier.verify(head, digest, service=SIGNED_FOR)
                await self._own_paths(scope, _replayed(body, receive), send)
            return
        except AwsError as error:
            answer = aws_refusal(error)
        except BodyTooLarge:
            message = f"The body may have {LARGEST_BODY_BYTES} bytes at most."
            answer = json_answer({"message": message}, 400)
        except SagehenError as error:
            answer = refusal(error)
        except ClientGone:
            return
        await answer(scope, receive, send)

    def _check_token(self, token: str) -> None:
        if not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            raise AwsError(
                "UnrecognizedClientException",
                "The bearer token is not this server's, which is in the file `token` of its home.",
                403,
            )


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
