"""Finds the service that a request is signed for, or probably meant for."""

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
    """A request without its body."""

    @property
    def method(self) -> str: ...

    @property
    def raw_path(self) -> str:
        """Percent-encoded as sent, without the query."""

    @property
    def raw_query(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Lower-case names; repeated headers joined by commas."""


class Scope(msgspec.Struct, frozen=True):
    """A credential scope: access key, day, region and service."""

    access_key: str
    date: str
    region: str
    service: str

    @property
    def text(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


class Signing(Enum):
    """Where a request carries its signature."""

    NOWHERE = auto()
    HEADER = auto()
    """`Authorization`"""
    LINK = auto()
    """SigV4 in the query: `X-Amz-Signature` and others"""
    OLD_LINK = auto()
    """S3's SigV2 in the query: `Signature` and `AWSAccessKeyId`"""
    SEVERAL = auto()
    """several of these places, always refused"""


def signing_of(head: RequestHead) -> Signing:
    by_header = "authorization" in head.headers
    if not head.raw_query:
        return Signing.HEADER if by_header else Signing.NOWHERE
    names = link_parameters(head.raw_query).keys()
    locations = []
    if by_header:
        locations.append(Signing.HEADER)
    if "X-Amz-Signature" in names or "X-Amz-Algorithm" in names:
        locations.append(Signing.LINK)
    if "AWSAccessKeyId" in names and "Signature" in names:
        locations.append(Signing.OLD_LINK)
    if len(locations) > 1:
        return Signing.SEVERAL
    return locations[0] if locations else Signing.NOWHERE


ErrorFamily = str
"""the service's style of signature errors: `json`, `query` or `s3`"""

_QUERY = ("iam", "monitoring", "sns", "sqs", "sts")
_FAMILIES = {"s3": "s3", **dict.fromkeys(_QUERY, "query")}
"""Former Query services keep its error codes in their later protocols."""


def error_family(service: str | None) -> ErrorFamily:
    return _FAMILIES.get(service or "", "json")


def read_scope(credential: str) -> Scope | None:
    """Parses `KEY/20261101/us-east-1/sagemaker/aws4_request`.

    Counts parts from the end, since an access key may hold slashes.
    """
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request" or not all(parts):
        return None
    return Scope(access_key=parts[0], date=parts[1], region=parts[2], service=parts[3])


def likely_service(head: RequestHead) -> str:
    """Returns the credential scope's service, or a guess; never fails.

    The guess also picks the error form of unsigned requests. Code that treats a service specially
    must pass it to `Verifier.verify`.
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
    """Parses a SigV4 Authorization header; the first of repeated parts wins."""
    parts = authorization.partition(" ")[2].split(",")
    pairs = [part.strip(" \t").partition("=") for part in parts]
    return {name: value for name, _, value in reversed(pairs)}


def link_parameters(raw_query: str) -> dict[str, str]:
    """Parses a presigned URL; the first of repeated parameters wins."""
    return dict(reversed(parameters_of(raw_query)))


def _credential(head: RequestHead, signing: Signing) -> str:
    if signing in (Signing.HEADER, Signing.SEVERAL):
        return authorization_parts(head.headers.get("authorization", "")).get("Credential", "")
    if signing is Signing.LINK:
        return link_parameters(head.raw_query).get("X-Amz-Credential", "")
    return ""
