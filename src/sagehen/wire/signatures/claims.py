"""Parses unverified signatures from headers and presigned URLs."""

import calendar
import datetime
import functools
import re
from email.utils import parsedate_to_datetime

import msgspec

from sagehen.wire.parameters import parameters_of
from sagehen.wire.scope import (
    ErrorFamily,
    Scope,
    authorization_parts,
    error_family,
    read_scope,
)
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.signing import ALGORITHM

__all__ = [
    "LONGEST_LINK_SECONDS",
    "Claim",
    "Link",
    "basic_date",
    "basic_time",
    "read_authorization",
    "read_link",
]

LONGEST_LINK_SECONDS = 7 * 24 * 3600

_BASIC_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")
BASIC_DATE_LENGTH = len("20261101T093000Z")
_HEADER_PARAMETERS = ("Credential", "Signature", "SignedHeaders")
_LINK_PARAMETERS = ("Algorithm", "Credential", "Signature", "Date", "SignedHeaders", "Expires")
_ONCE = frozenset(f"X-Amz-{name}" for name in (*_LINK_PARAMETERS, "Content-Sha256"))


class Claim(msgspec.Struct, frozen=True):
    """An unverified signature."""

    scope: Scope
    signed_headers: str
    """lower-case names, joined by `;`"""
    signature: str
    """hexadecimal"""


class Link(msgspec.Struct, frozen=True):
    """A presigned URL's own parameters."""

    claim: Claim
    timestamp: str
    """like 20261101T093000Z"""
    seconds: int
    """lifetime"""
    payload: str | None
    """`X-Amz-Content-Sha256`, where the URL has one"""


def read_authorization(authorization: str, family: ErrorFamily) -> Claim:
    """Raises AwsError for another algorithm and for missing, malformed, repeated or unknown
    parts."""
    algorithm = authorization.partition(" ")[0]
    if algorithm != ALGORITHM:
        message = f"Unsupported AWS 'algorithm': '{algorithm[:64]}'; use {ALGORITHM}."
        raise refusals.incomplete(family, message)
    parts = authorization_parts(authorization)
    lacking = [name for name in _HEADER_PARAMETERS if not parts.get(name)]
    if lacking:
        sentences = [f"Authorization header requires '{name}' parameter." for name in lacking]
        raise refusals.incomplete(family, " ".join(sentences))
    if len(parts) != len(_HEADER_PARAMETERS) or authorization.count(",") != len(parts) - 1:
        message = (
            "Authorization header must have one algorithm, and Credential, SignedHeaders and "
            "Signature once each."
        )
        raise refusals.incomplete(family, message)
    claim = _claim(parts["Credential"], parts["SignedHeaders"], parts["Signature"])
    if claim is None:
        raise refusals.incomplete(family, _bad_credential(parts["Credential"]))
    return claim


def read_link(raw_query: str) -> Link:
    """Raises AwsError for missing, malformed or repeated parameters and for those out of range."""
    pairs = [pair for pair in parameters_of(raw_query) if pair[0] in _ONCE]
    parameters = dict(pairs)
    scope = read_scope(parameters.get("X-Amz-Credential", ""))
    family = error_family(scope.service if scope else "s3")
    if not all(parameters.get(f"X-Amz-{name}") for name in _LINK_PARAMETERS):
        raise refusals.incomplete_link(
            family,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, "
            "X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and "
            "X-Amz-Expires parameters.",
        )
    if len(parameters) != len(pairs):
        message = "Each of the query parameters that sign a request may come once only."
        raise refusals.incomplete_link(family, message)
    if parameters["X-Amz-Algorithm"] != ALGORITHM:
        raise refusals.incomplete_link(family, f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    claim = _claim(
        parameters["X-Amz-Credential"],
        parameters["X-Amz-SignedHeaders"],
        parameters["X-Amz-Signature"],
    )
    if claim is None:
        raise refusals.incomplete_link(family, _bad_credential(parameters["X-Amz-Credential"]))
    return Link(
        claim,
        parameters["X-Amz-Date"],
        _seconds(family, parameters["X-Amz-Expires"]),
        parameters.get("X-Amz-Content-Sha256"),
    )


def basic_time(date: str) -> float | None:
    """Parses 20261101T093000Z to seconds since the epoch."""
    # The keys of the cache must be short: the text may be as long as a request's head.
    return _basic_time(date) if len(date) == BASIC_DATE_LENGTH else None


@functools.lru_cache(maxsize=256)
def _basic_time(date: str) -> float | None:
    if _BASIC_DATE.fullmatch(date) is None:
        return None
    try:
        moment = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return float(calendar.timegm(moment.timetuple()))


def basic_date(http_date: str) -> str | None:
    """Converts `Sun, 01 Nov 2026 09:30:00 GMT` to 20261101T093000Z; None if malformed."""
    try:
        moment = parsedate_to_datetime(http_date)
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None
    return moment.strftime("%Y%m%dT%H%M%SZ")


def _claim(credential: str, signed_headers: str, signature: str) -> Claim | None:
    scope = read_scope(credential)
    return None if scope is None else Claim(scope, signed_headers.lower(), signature)


def _bad_credential(credential: str) -> str:
    return (
        "Credential must have exactly 5 slash-delimited elements, e.g. "
        f"keyid/date/region/service/term, got '{credential[:256]}'"
    )


def _seconds(family: ErrorFamily, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,12}", text):
        raise refusals.incomplete_link(family, "X-Amz-Expires should be a number")
    seconds = int(text)
    if seconds < 0:
        raise refusals.incomplete_link(family, "X-Amz-Expires must be non-negative")
    if seconds > LONGEST_LINK_SECONDS:
        raise refusals.incomplete_link(
            family,
            "X-Amz-Expires must be less than a week (in seconds); that is, the given "
            f"X-Amz-Expires must be less than {LONGEST_LINK_SECONDS} seconds",
        )
    return seconds
