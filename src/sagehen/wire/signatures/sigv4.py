"""Verifies AWS Signature Version 4.

Session tokens are not required, since keys are long-lived; signatures cover those sent.
"""

import re
from collections.abc import Mapping

import msgspec

from sagehen.base.clock import Clock
from sagehen.wire.scope import (
    RequestHead,
    Signing,
    error_family,
    likely_service,
    link_parameters,
    signing_of,
)
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.canonical import (
    canonical_headers,
    canonical_paths,
    canonical_queries,
)
from sagehen.wire.signatures.claims import (
    Claim,
    Link,
    basic_date,
    basic_time,
    read_authorization,
    read_link,
)
from sagehen.wire.signatures.grants import Grant
from sagehen.wire.signatures.signing import UNSIGNED_PAYLOAD
from sagehen.wire.signatures.sigv2 import verify_old_link

__all__ = ["SKEW_SECONDS", "Identity", "Verifier"]

SKEW_SECONDS = 15 * 60
"""allowed difference between a request's date and our clock"""

_S3_PAYLOADS = re.compile(
    r"[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    r"|STREAMING-AWS4-HMAC-SHA256-PAYLOAD(?:-TRAILER)?"
)
_GLOBAL_REGIONS = {"iam": "us-east-1", "sts": "us-east-1"}
"""services without regions: clients always sign for this one"""

_MOST_GRANTS = 1024


class Identity(msgspec.Struct, frozen=True):
    """The signer of a request."""

    access_key: str
    service: str
    region: str
    payload_mode: str
    """the body's SHA-256 in hexadecimal (S3 must compare it), `UNSIGNED-PAYLOAD` or a `STREAMING-…`
    word"""
    timestamp: str
    scope: str
    signing_key: bytes
    seed_signature: str

    def __repr__(self) -> str:
        return f"Identity({self.access_key!r}, {self.scope!r}, {self.payload_mode!r})"


class Verifier:
    """Checks signatures; `secrets` maps access keys to secret keys."""

    def __init__(self, secrets: Mapping[str, str], clock: Clock, region: str) -> None:
        self._secrets = secrets
        self._clock = clock
        self._region = region
        self._grants: dict[str, Grant] = {}

    @property
    def region(self) -> str:
        return self._region

    def secret_of(self, access_key: str) -> str | None:
        return self._secrets.get(access_key)

    def verify(
        self,
        head: RequestHead,
        payload_sha256: str | None,
        now: float | None = None,
        service: str | None = None,
        unsigned_body: bool = False,
    ) -> Identity:
        """Returns the signer.

        Args:
            payload_sha256: of the raw body, in hexadecimal; None only for S3, whose header has the
                digest of the body to come.
            now: seconds since the epoch; None takes the clock's.
            service: the required service; None allows any.
            unsigned_body: allows the signed request to leave its body unsigned, as S3 always does.

        Raises:
            AwsError: unsigned or wrongly signed, in the service's wording.
        """
        now = self._clock.now() if now is None else now
        signing = signing_of(head)
        if unsigned_body and _leaves_body_unsigned(head, signing):
            payload_sha256 = UNSIGNED_PAYLOAD
        if signing is Signing.HEADER:
            return self._verify_header(head, payload_sha256, now, service)
        if signing is Signing.LINK:
            return self._verify_link(head, payload_sha256, now, service)
        if signing is Signing.OLD_LINK:
            return self._verify_old_link(head, now, service)
        if signing is Signing.SEVERAL:
            raise refusals.both_ways_signed(error_family(likely_service(head)))
        raise refusals.missing(error_family(likely_service(head)))

    def check_head(self, head: RequestHead, service: str | None = None) -> None:
        """Refuses bad requests before their body is read, so that clients without a key cannot fill
        memory.

        Raises AwsError as `verify`, except for the signature itself and the body.
        """
        now = self._clock.now()
        signing = signing_of(head)
        if signing is Signing.HEADER:
            authorization = head.headers["authorization"]
            grant = self._grants.get(authorization.rpartition("Signature=")[0])
            if grant is None:
                claim = read_authorization(authorization, error_family(likely_service(head)))
                grant = self._grant(claim)
            _check_service(grant, service)
            _check_skew(grant, _timestamp(head, grant), now)
            _check_signed_headers(grant, head.headers)
        elif signing is Signing.LINK:
            self._check_link(read_link(head.raw_query), head, now, service)
        elif signing is Signing.OLD_LINK:
            self._verify_old_link(head, now, service)
        elif signing is Signing.SEVERAL:
            raise refusals.both_ways_signed(error_family(likely_service(head)))
        else:
            raise refusals.missing(error_family(service or likely_service(head)))

    def _check_link(self, link: Link, head: RequestHead, now: float, service: str | None) -> Grant:
        grant = self._grant(link.claim)
        _check_service(grant, service)
        signed_at = _seconds(grant, link.timestamp)
        if signed_at - now > SKEW_SECONDS:
            raise refusals.outside_skew(grant.family, link.timestamp, now, SKEW_SECONDS)
        if now > signed_at + link.seconds:
            expired_at = signed_at + link.seconds
            raise refusals.expired_link(grant.family, link.timestamp, link.seconds, expired_at, now)
        _check_signed_headers(grant, head.headers)
        return grant

    def _verify_header(
        self, head: RequestHead, payload_sha256: str | None, now: float, service: str | None
    ) -> Identity:
        authorization = head.headers["authorization"]
        # All but the signature repeats in a client's requests.
        remembered, _, signature = authorization.rpartition("Signature=")
        grant = self._grants.get(remembered)
        is_new = grant is None
        if grant is None:
            claim = read_authorization(authorization, error_family(likely_service(head)))
            grant = self._grant(claim)
            is_new = claim.signature == signature
            signature = claim.signature
        _check_service(grant, service)
        timestamp = _timestamp(head, grant)
        _check_skew(grant, timestamp, now)
        _check_signed_headers(grant, head.headers)
        payload = _payload(grant, head, payload_sha256)
        if not grant.is_plainly_signed(head, timestamp, payload, signature):
            self._check_signature(head, grant, timestamp, payload, signature)
        if is_new:
            self._remember(remembered, grant)
        return _identity(grant, timestamp, payload, signature)

    def _verify_link(
        self, head: RequestHead, payload_sha256: str | None, now: float, service: str | None
    ) -> Identity:
        link = read_link(head.raw_query)
        grant = self._check_link(link, head, now, service)
        if grant.family == "s3":
            payload = UNSIGNED_PAYLOAD if link.payload is None else link.payload
            if not _S3_PAYLOADS.fullmatch(payload):
                raise refusals.no_digest(payload)
            if "x-amz-content-sha256" in grant.name_set:
                payload = _payload(grant, head, payload_sha256)
        else:
            payload = _payload(grant, head, payload_sha256)
        self._check_signature(head, grant, link.timestamp, payload, link.claim.signature)
        return _identity(grant, link.timestamp, payload, link.claim.signature)

    def _verify_old_link(self, head: RequestHead, now: float, service: str | None) -> Identity:
        if service not in (None, "s3"):
            raise refusals.missing(error_family(service))
        access_key = verify_old_link(head, self._secrets, now)
        return Identity(access_key, "s3", self._region, UNSIGNED_PAYLOAD, "", "", b"", "")

    def _grant(self, claim: Claim) -> Grant:
        scope = claim.scope
        family = error_family(scope.service)
        secret = self._secrets.get(scope.access_key)
        if secret is None:
            raise refusals.no_such_key(family, scope.access_key)
        if scope.region not in (self._region, _GLOBAL_REGIONS.get(scope.service)):
            raise refusals.wrong_region(family, scope.region, self._region)
        if "host" not in claim.signed_headers.split(";"):
            raise refusals.not_signed(family, ["host"])
        return Grant(claim, secret)

    def _remember(self, text: str, grant: Grant) -> None:
        # Only valid signatures add entries, so strangers cannot fill the cache.
        if len(self._grants) >= _MOST_GRANTS:
            self._grants.clear()
        self._grants[text] = grant

    def _check_signature(
        self, head: RequestHead, grant: Grant, timestamp: str, payload: str, signature: str
    ) -> None:
        lines = canonical_headers(head.headers, grant.names)
        first = None
        for path in canonical_paths(grant.scope.service, head.raw_path):
            for query in canonical_queries(head.raw_query):
                canonical = (
                    f"{head.method}\n{path}\n{query}\n{lines}\n{grant.signed_headers}\n{payload}"
                )
                to_sign = grant.to_sign(timestamp, canonical)
                if grant.is_right(to_sign, signature):
                    return
                first = first or (canonical, to_sign)
        canonical, to_sign = first or ("", "")
        key = grant.scope.access_key
        raise refusals.wrong_signature(grant.family, key, signature, canonical, to_sign)


def _check_service(grant: Grant, service: str | None) -> None:
    if service is not None and grant.scope.service != service:
        raise refusals.wrong_service(grant.family, grant.scope.service, service)


def _timestamp(head: RequestHead, grant: Grant) -> str:
    date = head.headers.get("x-amz-date")
    if date is not None:
        return date
    timestamp = basic_date(head.headers.get("date", ""))
    if timestamp is None:
        raise refusals.incomplete(
            grant.family,
            "Authorization header requires existence of 'X-Amz-Date' or 'Date' header.",
        )
    return timestamp


def _seconds(grant: Grant, timestamp: str) -> float:
    seconds = basic_time(timestamp)
    if seconds is None:
        message = f"Date must be in ISO-8601 'basic format'. Got '{timestamp[:64]}'."
        raise refusals.incomplete(grant.family, message)
    if timestamp[:8] != grant.scope.date:
        message = (
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from "
            f"HTTP: '{grant.scope.date}' != '{timestamp[:8]}', from '{timestamp}'."
        )
        raise refusals.incomplete(grant.family, message)
    return seconds


def _check_skew(grant: Grant, timestamp: str, now: float) -> None:
    if abs(_seconds(grant, timestamp) - now) > SKEW_SECONDS:
        raise refusals.outside_skew(grant.family, timestamp, now, SKEW_SECONDS)


def _check_signed_headers(grant: Grant, headers: Mapping[str, str]) -> None:
    left_out = headers.keys() - grant.name_set
    for name in left_out:
        if name.startswith("x-amz-"):
            unsigned = sorted(header for header in left_out if header.startswith("x-amz-"))
            raise refusals.not_signed(grant.family, unsigned)


def _leaves_body_unsigned(head: RequestHead, signing: Signing) -> bool:
    """Reads signed places only: unsigned headers are refused, and links sign their parameters."""
    if head.headers.get("x-amz-content-sha256") == UNSIGNED_PAYLOAD:
        return True
    if signing is not Signing.LINK:
        return False
    return link_parameters(head.raw_query).get("X-Amz-Content-Sha256") == UNSIGNED_PAYLOAD


def _payload(grant: Grant, head: RequestHead, payload_sha256: str | None) -> str:
    if grant.family != "s3":
        if payload_sha256 is None:
            raise ValueError(f"{grant.scope.service} needs the digest of the body.")
        return payload_sha256
    declared = head.headers.get("x-amz-content-sha256")
    if declared is None or not _S3_PAYLOADS.fullmatch(declared):
        raise refusals.no_digest(declared)
    if payload_sha256 is not None and len(declared) == 64 and declared != payload_sha256:
        raise refusals.other_body(declared, payload_sha256)
    return declared


def _identity(grant: Grant, timestamp: str, payload: str, signature: str) -> Identity:
    return Identity(
        grant.scope.access_key,
        grant.scope.service,
        grant.scope.region,
        payload,
        timestamp,
        grant.scope_text,
        grant.signing_key,
        signature,
    )
