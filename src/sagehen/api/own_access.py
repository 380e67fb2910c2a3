"""Who may use the own paths: decided here, before any of them is asked.

Each path needs the account's keys (SigV4, for the service `execute-api`) or the token in the home's
file `token`, as `Authorization: Bearer …`. What is open to more is in `UNSIGNED`, and nowhere else.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sagehen.api.asgi import request_head
from sagehen.api.own_answers import aws_refusal, json_answer, refusal
from sagehen.api.own_site import OwnSite, is_loopback
from sagehen.api.request_body import BodyBudget, BodyTooLarge, ClientGone
from sagehen.errors import SagehenError
from sagehen.wire.faults import AwsError
from sagehen.wire.sigv4 import Verifier

__all__ = [
    "LARGEST_BODY_BYTES",
    "SIGNED_FOR",
    "UNSIGNED",
    "Access",
    "Guard",
    "Metrics",
    "access_of",
]

SIGNED_FOR = "execute-api"
"""The service in the credential scope, as of a REST API of one's own behind IAM."""
LARGEST_BODY_BYTES = 4 * 2**20
"""Of a request to any own path; most take less."""
_BEARER = "bearer "


class Access(Enum):
    """What a request needs to get to an own path."""

    KEYS = "a signature, or the token"
    HEALTH = "nothing"
    PUBLIC = "a host name of this server"
    METRICS = "as KEYS, unless they are open: see Metrics"
    INTERNAL = "the Unix socket: no gateway lets anybody through"


UNSIGNED = {
    "/_sagehen/health": Access.HEALTH,
    "/_sagehen/metrics": Access.METRICS,
    "/_sagehen/sns/": Access.PUBLIC,  # the certificate that subscribers check messages with
    "/_sagehen/internal/": Access.INTERNAL,
}
"""What needs no keys, by its path; what ends with a slash stands for all below it."""


def access_of(path: str) -> Access:
    """What a request to `path`, decoded, needs."""
    if path in UNSIGNED:
        return UNSIGNED[path]
    for prefix, access in UNSIGNED.items():
        if prefix.endswith("/") and path.startswith(prefix):
            return access
    return Access.KEYS


@dataclass(frozen=True)
class Metrics:
    """Whether the metrics may be read without keys."""

    listens_on: str
    """The address."""
    open: bool
    """By whoever reaches the port, as the setting `open_metrics` says."""

    def are_open_to(self, headers: Mapping[str, str]) -> bool:
        if self.open:
            return True
        # A proxy on this machine asks from here too, for anybody.
        is_relayed = any(map(_names_a_proxy, headers))
        return (
            is_loopback(self.listens_on) and is_loopback(headers.get("host", "")) and not is_relayed
        )


def _names_a_proxy(header: str) -> bool:
    """Whether the header of this name, in lower case, is one that proxies add."""
    return header in ("forwarded", "via", "x-real-ip") or header.startswith("x-forwarded-")


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
            given = head.headers.get("authorization", "")
            bearer = given[len(_BEARER) :] if given[: len(_BEARER)].lower() == _BEARER else None
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

    def _check_token(self, given: str) -> None:
        if not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise AwsError(
                "UnrecognizedClientException",
                "The bearer token is not this server's, which is in the file `token` of its home.",
                403,
            )


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives a body that has been read once more, then what else comes."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay
