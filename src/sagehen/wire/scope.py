"""Whom a request is for: the service named by its signature, or the likeliest one without it."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

import msgspec

from sagehen.wire.parameters import parameters_of

__all__ = [
    "ErrorFamily",
    "RequestHead",
    "Scope",
    "Signing",
    "authorization_parts",
    "error_family",
    "likely_service",
    "link_parameters",
    "read_scope",
    "signing_of",
]


class RequestHead(Protocol):
    """A request without its body; `wire.http.Request` is one."""

    @property
    def method(self) -> str: ...

    @property
    def raw_path(self) -> str:
        """As sent: percent-encoded, without the query."""

    @property
    def raw_query(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case; repeated headers joined by commas."""


class Scope(msgspec.Struct, frozen=True):
    """What a credential says: whose key signs, and for which day, region and service."""

    access_key: str
    date: str
    region: str
    service: str

    @property
    def text(self) -> str:
        """As it stands in a string to sign."""
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


class Signing(Enum):
    """Where a request carries its signature."""

    NOWHERE = auto()
    HEADER = auto()
    """In `Authorization`."""
    LINK = auto()
    """In the query, by SigV4: `X-Amz-Signature` and its like."""
    OLD_LINK = auto()
    """In the query, by S3's older signature: `Signature` and `AWSAccessKeyId`."""
    SEVERAL = auto()
    """In more than one of these places, which nobody accepts."""


def signing_of(head: RequestHead) -> Signing:
    """Where a request is signed. Whoever treats signed requests in another way asks this."""
    by_header = "authorization" in head.headers
    if not head.raw_query:
        return Signing.HEADER if by_header else Signing.NOWHERE
    names = link_parameters(head.raw_query).keys()
    places = []
    if by_header:
        places.append(Signing.HEADER)
    if "X-Amz-Signature" in names or "X-Amz-Algorithm" in names:
        places.append(Signing.LINK)
    if "AWSAccessKeyId" in names and "Signature" in names:
        places.append(Signing.OLD_LINK)
    if len(places) > 1:
        return Signing.SEVERAL
    return places[0] if places else Signing.NOWHERE


ErrorFamily = str
"""How a service tells of a refused signature: `json`, `query` or `s3`."""

_QUERY = ("iam", "monitoring", "sns", "sqs", "sts")
_FAMILIES = {"s3": "s3", **dict.fromkeys(_QUERY, "query")}
"""Services that once spoke Query only kept its codes in the protocols that came later."""


def error_family(service: str | None) -> ErrorFamily:
    return _FAMILIES.get(service or "", "json")


def read_scope(credential: str) -> Scope | None:
    """The parts of `KEY/20261101/us-east-1/sagemaker/aws4_request`; None if it is not of that form.

    An access key may hold slashes itself, so the parts are counted from the end.
    """
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request" or not all(parts):
        return None
    return Scope(access_key=parts[0], date=parts[1], region=parts[2], service=parts[3])


def likely_service(head: RequestHead) -> str:
    """The service in the credential scope; without one, the service such a request is mostly for.

    Never fails: it also says in whose form a request is refused that nobody could have signed. What
    is done differently for one service must have `Verifier.verify` told that it is this one.
    """
    signing = signing_of(head)
    scope = read_scope(_credential(head, signing))
    if scope is not None:
        return scope.service
    if signing is Signing.OLD_LINK:
        return "s3"
    content_type = head.headers.get("content-type", "")
    if "x-amz-target" in head.headers or "json" in content_type:
        return "sagemaker"
    if head.raw_path.startswith("/endpoints/"):
        return "sagemaker"
    return "sts" if "x-www-form-urlencoded" in content_type else "s3"


def authorization_parts(authorization: str) -> dict[str, str]:
    """The parts of a SigV4 Authorization header by name; of one that comes twice, the first."""
    parts = authorization.partition(" ")[2].split(",")
    pairs = [part.strip(" \t").partition("=") for part in parts]
    return {name: value for name, _, value in reversed(pairs)}


def link_parameters(raw_query: str) -> dict[str, str]:
    """The parameters of a presigned URL; of one that comes twice, the first."""
    return dict(reversed(parameters_of(raw_query)))


def _credential(head: RequestHead, signing: Signing) -> str:
    if signing in (Signing.HEADER, Signing.SEVERAL):
        return authorization_parts(head.headers.get("authorization", "")).get("Credential", "")
    if signing is Signing.LINK:
        return link_parameters(head.raw_query).get("X-Amz-Credential", "")
    return ""
