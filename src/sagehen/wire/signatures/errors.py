"""Signature errors in the wording of the three families of AWS services.

`query` means services that speak or once spoke that protocol, `json` all others but S3.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from sagehen.wire.errors import AwsError
from sagehen.wire.scope import ErrorFamily

__all__ = [
    "both_ways_signed",
    "expired_link",
    "expired_s3_link",
    "incomplete",
    "incomplete_link",
    "missing",
    "no_digest",
    "no_such_key",
    "not_signed",
    "other_body",
    "outside_skew",
    "wrong_region",
    "wrong_service",
    "wrong_signature",
]

_GET_KEYS = 'This server\'s own key is in its home: eval "$(sagehen env)" exports it.'

_BASIC = "%Y%m%dT%H%M%SZ"
_INCOMPLETE = {"json": "IncompleteSignatureException", "query": "IncompleteSignature"}
_MISMATCH = {"json": "InvalidSignatureException"}


def missing(family: ErrorFamily) -> AwsError:
    if family == "s3":
        return AwsError(
            "AccessDenied", f"Access Denied. The request is not signed. {_GET_KEYS}", 403
        )
    code = "MissingAuthenticationToken" + ("Exception" if family == "json" else "")
    return AwsError(code, f"Request is missing Authentication Token. {_GET_KEYS}", 403)


def incomplete(family: ErrorFamily, reason: str) -> AwsError:
    """`why` is a sentence."""
    if family == "s3":
        return AwsError(
            "AuthorizationHeaderMalformed",
            f"The authorization header that you provided is not valid. {reason}",
            400,
        )
    return AwsError(_INCOMPLETE[family], reason, 400)


def incomplete_link(family: ErrorFamily, message: str) -> AwsError:
    """`why` is a sentence."""
    if family == "s3":
        return AwsError("AuthorizationQueryParametersError", message, 400)
    return AwsError(_INCOMPLETE[family], message, 400)


def both_ways_signed(family: ErrorFamily) -> AwsError:
    message = (
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter or the "
        "Authorization header should be specified."
    )
    return AwsError("InvalidArgument" if family == "s3" else _INCOMPLETE[family], message, 400)


def no_such_key(family: ErrorFamily, access_key: str) -> AwsError:
    if family == "s3":
        return AwsError(
            "InvalidAccessKeyId",
            f"The AWS Access Key Id you provided does not exist in our records. {_GET_KEYS}",
            403,
            AWSAccessKeyId=access_key,
        )
    code = "UnrecognizedClientException" if family == "json" else "InvalidClientTokenId"
    return AwsError(
        code, f"The security token included in the request is invalid. {_GET_KEYS}", 403
    )


def wrong_signature(
    family: ErrorFamily, access_key: str, signature: str, canonical: str, to_sign: str
) -> AwsError:
    """The message holds the signed text, as in AWS; the text contains no secret."""
    head = "The request signature we calculated does not match the signature you provided. Check"
    if family == "s3":
        signed = {"StringToSign": to_sign, "CanonicalRequest": canonical}
        texts = {name: text for name, text in signed.items() if text}
        return AwsError(
            "SignatureDoesNotMatch",
            f"{head} your key and signing method. {_GET_KEYS}",
            403,
            AWSAccessKeyId=access_key,
            SignatureProvided=signature,
            **texts,
            **{f"{name}Bytes": _hexadecimal(text) for name, text in texts.items()},
        )
    head += " your AWS Secret Access Key and signing method."
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"),
        f"{head} {_GET_KEYS}\n\nThe Canonical String for this request should have been\n"
        f"'{canonical}'\n\nThe String-to-Sign should have been\n'{to_sign}'\n",
        403,
    )


def outside_skew(family: ErrorFamily, signed: str, now: float, skew_seconds: int) -> AwsError:
    """`signed` is like 20261101T093000Z, and `now` in seconds since the epoch."""
    minutes = skew_seconds // 60
    ours = _time(now, _BASIC)
    if family == "s3":
        return AwsError(
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large. "
            "Set this machine's clock.",
            403,
            RequestTime=signed,
            ServerTime=_time(now),
            MaxAllowedSkewMilliseconds=skew_seconds * 1000,
        )
    if signed < ours:
        message = f"Signature expired: {signed} is more than {minutes} min. earlier than {ours}."
    else:
        message = (
            f"Signature not yet current: {signed} is more than {minutes} min. later than {ours}."
        )
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"), f"{message} Check the client's clock.", 403
    )


def expired_s3_link(expired_at: float, now: float, **members: object) -> AwsError:
    """Times are seconds since the epoch."""
    return AwsError(
        "AccessDenied",
        "Request has expired",
        403,
        **members,
        Expires=_time(expired_at),
        ServerTime=_time(now),
    )


def expired_link(
    family: ErrorFamily, signed: str, seconds: int, expired_at: float, now: float
) -> AwsError:
    if family == "s3":
        return expired_s3_link(expired_at, now, **{"X-Amz-Expires": seconds})
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"),
        f"Signature expired: it was good for {seconds} s from {signed}, and it is "
        f"{_time(now, _BASIC)} now.",
        403,
    )


def _time(seconds: float, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _hexadecimal(text: str) -> str:
    return text.encode("utf-8", "replace").hex(" ")


def wrong_region(family: ErrorFamily, region: str, ours: str) -> AwsError:
    if family == "s3":
        return AwsError(
            "AuthorizationHeaderMalformed",
            f"The authorization header is malformed; the region '{region}' is wrong; expecting "
            f"'{ours}'",
            400,
            Region=ours,
        )
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"),
        f"Credential should be scoped to a valid region, not '{region}'. This server's region is "
        f"'{ours}': set AWS_REGION={ours}, or start it with SAGEHEN_REGION={region}.",
        403,
    )


def wrong_service(family: ErrorFamily, service: str, right: str) -> AwsError:
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"),
        f"Credential should be scoped to correct service: '{right}', not '{service}'.",
        403,
    )


def not_signed(family: ErrorFamily, headers: Iterable[str]) -> AwsError:
    """Refuses unsigned headers that select the operation: anyone could have set them."""
    names = ", ".join(headers)
    if family == "s3":
        return AwsError(
            "AccessDenied",
            "There were headers present in the request which were not signed",
            403,
            HeadersNotSigned=names,
        )
    return AwsError(
        _MISMATCH.get(family, "SignatureDoesNotMatch"),
        f"'{names}' must be a 'SignedHeader' in the AWS Authorization.",
        403,
    )


def no_digest(digest: str | None) -> AwsError:
    if digest is None:
        return AwsError(
            "InvalidRequest", "Missing required header for this request: x-amz-content-sha256", 400
        )
    return AwsError(
        "InvalidArgument",
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, "
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a "
        "valid sha256 value.",
        400,
        ArgumentName="x-amz-content-sha256",
        ArgumentValue=digest,
    )


def other_body(signed: str, computed: str) -> AwsError:
    return AwsError(
        "XAmzContentSHA256Mismatch",
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
        400,
        ClientComputedContentSHA256=signed,
        S3ComputedContentSHA256=computed,
    )
