"""Checks the policy signature of browser-based uploads to S3, by the form's fields.

SigV4: x-amz-algorithm, x-amz-credential, x-amz-date, x-amz-signature
SigV2, boto3's default: AWSAccessKeyId, signature
"""

import base64
import hmac
from collections.abc import Mapping

from sagehen.wire.errors import AwsError
from sagehen.wire.scope import read_scope
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.claims import basic_time
from sagehen.wire.signatures.grants import KeyedHash, signing_key
from sagehen.wire.signatures.signing import ALGORITHM
from sagehen.wire.signatures.sigv4 import Verifier

__all__ = ["missing_field", "verify_form"]

_NEW = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date")
_OLD = ("AWSAccessKeyId", "Signature")


def verify_form(fields: Mapping[str, str], verifier: Verifier) -> str:
    """Returns the access key; `fields` are by lower-case name. Raises AwsError."""
    for names in (_NEW, _OLD):
        if any(name.lower() in fields for name in names):
            for name in (*names, "policy"):
                if name.lower() not in fields:
                    raise missing_field(name)
            return _verify_new(fields, verifier) if names is _NEW else _verify_old(fields, verifier)
    raise refusals.missing("s3")


def missing_field(name: str) -> AwsError:
    return _invalid(
        f"Bucket POST must contain a field named '{name}'.  If it is specified, please check the "
        "order of the fields.",
        name,
        "",
    )


def _verify_new(fields: Mapping[str, str], verifier: Verifier) -> str:
    if (algorithm := fields["x-amz-algorithm"]) != ALGORITHM:
        raise _invalid(f"X-Amz-Algorithm only supports {ALGORITHM}", "X-Amz-Algorithm", algorithm)
    if basic_time(date := fields["x-amz-date"]) is None:
        raise _invalid(
            "X-Amz-Date must be formated via ISO8601 Long format", "X-Amz-Date", date[:64]
        )
    credential = fields["x-amz-credential"]
    scope = read_scope(credential)
    if scope is None or scope.service != "s3":
        raise _invalid(
            "the Credential is mal-formed; expecting "
            '"<YOUR-AKID>/YYYYMMDD/REGION/s3/aws4_request".',
            "X-Amz-Credential",
            credential[:256],
        )
    if scope.region != verifier.region:
        raise _invalid(
            f"the region '{scope.region}' is wrong; expecting '{verifier.region}'",
            "X-Amz-Credential",
            credential[:256],
        )
    secret = verifier.secret_of(scope.access_key)
    if secret is None:
        raise refusals.no_such_key("s3", scope.access_key)
    policy = fields["policy"]
    ours = KeyedHash(signing_key(secret, scope)).hexdigest(policy.encode())
    return _compared(scope.access_key, ours, fields["x-amz-signature"], policy)


def _verify_old(fields: Mapping[str, str], verifier: Verifier) -> str:
    access_key = fields["awsaccesskeyid"]
    secret = verifier.secret_of(access_key)
    if secret is None:
        raise refusals.no_such_key("s3", access_key)
    policy = fields["policy"]
    digest = hmac.digest(secret.encode(), policy.encode(), "sha1")
    return _compared(access_key, base64.b64encode(digest).decode(), fields["signature"], policy)


def _compared(access_key: str, ours: str, signature: str, policy: str) -> str:
    if not hmac.compare_digest(ours.encode(), signature.encode()):
        raise refusals.wrong_signature("s3", access_key, signature, "", policy)
    return access_key


def _invalid(message: str, name: str, value: str) -> AwsError:
    return AwsError("InvalidArgument", message, 400, ArgumentName=name, ArgumentValue=value)
