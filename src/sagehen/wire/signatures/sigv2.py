"""S3's SigV2 presigned URLs, which boto3 and the AWS CLI still make for custom endpoints.

…?AWSAccessKeyId=…&Signature=…&Expires=<seconds since the epoch>&x-amz-meta-…=…

Headers `x-amz-…` may be in the query; the signature covers them like headers.

SigV2 Authorization headers are refused.
"""

import base64
import functools
import hmac
from collections.abc import Mapping
from urllib.parse import unquote

from sagehen.wire.errors import AwsError
from sagehen.wire.parameters import check_each_once, parameters_of
from sagehen.wire.scope import RequestHead
from sagehen.wire.services import service
from sagehen.wire.signatures import errors as refusals

__all__ = ["verify_old_link"]


@functools.cache
def _signed_parameters() -> frozenset[str]:
    """Returns the parameters that select the operation."""
    from botocore.auth import HmacV1Auth  # slow to import, and such links are rare

    return frozenset(HmacV1Auth.QSAOfInterest)


_NEED_NOT_BE_SIGNED = frozenset(("list-type", "x-id"))
"""unsigned parameters that change nothing beyond what the link allows"""


def verify_old_link(head: RequestHead, secrets: Mapping[str, str], now: float) -> str:
    """Raises AwsError for incomplete, expired or wrongly signed links, and where an unsigned
    parameter selects the operation."""
    pairs = parameters_of(head.raw_query)
    check_each_once(pairs)
    parameters = dict(pairs)
    access_key, signature = parameters.get("AWSAccessKeyId", ""), parameters.get("Signature", "")
    expires = parameters.get("Expires", "")
    if not expires.isascii() or not expires.isdigit() or len(expires) > 12:
        raise refusals.incomplete_link(
            "s3",
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId "
            "parameters",
        )
    secret = secrets.get(access_key)
    if secret is None:
        raise refusals.no_such_key("s3", access_key)
    to_sign = [
        _string_to_sign(head, parameters, resource) for resource in _resources(head, parameters)
    ]
    if not any(_is_right(secret, name, signature) for name in to_sign):
        raise refusals.wrong_signature("s3", access_key, signature, "", to_sign[0])
    if now > int(expires):
        raise refusals.expired_s3_link(int(expires), now)
    unsigned = sorted(
        parameters.keys() & _subresources() - _signed_parameters() - _NEED_NOT_BE_SIGNED
    )
    if unsigned:
        raise AwsError(
            "AccessDenied",
            f"Links of signature version 2 do not sign the parameter {unsigned[0]}, so that "
            "anyone could have added it. Sign with signature_version='s3v4'.",
            403,
        )
    for name in parameters.keys() & _signed_parameters():
        _, *others = parameters[name].split("&")
        if _signed_parameters() & {other.partition("=")[0] for other in others}:
            raise AwsError(
                "AccessDenied",
                f"The parameter {name} of this link has the text of another parameter in it, which "
                "signature version 2 cannot tell apart. Sign with signature_version='s3v4'.",
                403,
            )
    return access_key


def _is_right(secret: str, to_sign: str, signature: str) -> bool:
    digest = hmac.digest(secret.encode(), to_sign.encode("utf-8", "replace"), "sha1")
    return hmac.compare_digest(base64.b64encode(digest), signature.encode("utf-8", "replace"))


def _string_to_sign(head: RequestHead, parameters: Mapping[str, str], resource: str) -> str:
    headers = {name.lower(): value for name, value in parameters.items()} | {**head.headers}
    amz = sorted(name for name in headers if name.startswith("x-amz-"))
    lines = [
        head.method,
        head.headers.get("content-md5", "").strip(),
        head.headers.get("content-type", "").strip(),
        parameters["Expires"],
        # A line break would make one parameter look like two signed headers.
        *(f"{name}:{headers[name].strip()}".replace("\n", " ") for name in amz),
    ]
    return "\n".join([*lines, resource])


def _resources(head: RequestHead, parameters: Mapping[str, str]) -> list[str]:
    """Clients sign buckets with or without a final slash."""
    raw_path = head.raw_path
    is_bucket = raw_path != "/" and unquote(raw_path).count("/") == 1
    paths = [f"{raw_path}/", raw_path] if is_bucket else [raw_path]
    bare = {pair for pair in head.raw_query.split("&") if "=" not in pair}
    signed = [
        name if name in bare else f"{name}={value}"
        for name, value in sorted(parameters.items())
        if name in _signed_parameters()
    ]
    query = "&".join(signed)
    return [f"{path}?{query}" if query else path for path in paths]


@functools.cache
def _subresources() -> frozenset[str]:
    model = service("s3")
    uris = (model.operation_model(name).http["requestUri"] for name in model.operation_names)
    return frozenset(name for uri in uris for name, _ in parameters_of(uri.partition("?")[2]))
