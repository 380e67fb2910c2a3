"""The older presigned URLs of S3: boto3 and the AWS CLI still make them for endpoints of one's own.

    …?AWSAccessKeyId=…&Signature=…&Expires=<seconds since the epoch>

Only such links are taken; a request whose Authorization header is of that age is not.
"""

import base64
import hmac
from collections.abc import Mapping
from urllib.parse import unquote

from botocore.auth import HmacV1Auth

from sagehen.wire import refusals
from sagehen.wire.faults import AwsError
from sagehen.wire.scope import RequestHead, link_parameters

__all__ = ["is_old_link", "verify_old_link"]

_SIGNED_PARAMETERS = frozenset(HmacV1Auth.QSAOfInterest)
"""Those that name what is asked for; others are not signed."""


def is_old_link(raw_query: str) -> bool:
    return "AWSAccessKeyId=" in raw_query and "Signature=" in raw_query


def verify_old_link(head: RequestHead, secrets: Mapping[str, str], now: float) -> str:
    """The access key that signed the link.

    Raises:
        AwsError: the link is not whole, past its time, or not rightly signed.
    """
    given = link_parameters(head.raw_query)
    access_key, signature = given.get("AWSAccessKeyId", ""), given.get("Signature", "")
    expires = given.get("Expires", "")
    if not expires.isascii() or not expires.isdigit() or len(expires) > 12:
        raise refusals.incomplete_link(
            "s3",
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId "
            "parameters",
        )
    secret = secrets.get(access_key)
    if secret is None:
        raise refusals.no_such_key("s3", access_key)
    to_sign = _string_to_sign(head, expires)
    digest = hmac.digest(secret.encode(), to_sign.encode("utf-8", "replace"), "sha1")
    if not hmac.compare_digest(base64.b64encode(digest), signature.encode("utf-8", "replace")):
        raise refusals.wrong_signature("s3", access_key, signature, "", to_sign)
    if now > int(expires):
        raise AwsError("AccessDenied", "Request has expired", 403, Expires=expires)
    return access_key


def _string_to_sign(head: RequestHead, expires: str) -> str:
    headers = head.headers
    amz = sorted(name for name in headers if name.startswith("x-amz-"))
    lines = [
        head.method,
        headers.get("content-md5", "").strip(),
        headers.get("content-type", "").strip(),
        expires,
        *(f"{name}:{headers[name].strip()}" for name in amz),
    ]
    return "\n".join([*lines, _resource(head)])


def _resource(head: RequestHead) -> str:
    signed = []
    for pair in head.raw_query.split("&"):
        name, equals, value = pair.partition("=")
        if name in _SIGNED_PARAMETERS:
            signed.append(name + equals + unquote(value))
    query = "&".join(sorted(signed, key=lambda pair: pair.partition("=")[0]))
    return f"{head.raw_path}?{query}" if query else head.raw_path
