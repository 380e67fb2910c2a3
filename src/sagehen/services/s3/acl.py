"""Canned access control lists, which are kept but grant nothing: every request is signed by a key
of the one account that owns everything."""

import hashlib
import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element

import msgspec

from sagehen.services.s3.errors import invalid_argument, malformed_xml, not_implemented
from sagehen.services.s3.http.body import read_document
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import child_text, children, document, element, parse, text
from sagehen.services.s3.storage.records import BucketSettings
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response

__all__ = [
    "acl_with_ownership",
    "canonical_id",
    "check_expected_owner",
    "get_acl",
    "initiator_element",
    "new_bucket_acl",
    "owner_element",
    "put_acl",
    "written_acl",
]

_ACCOUNT_ID = re.compile(r"[0-9]{12}")
_EXPECTATIONS = ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner")


def check_expected_owner(exchange: S3Exchange) -> None:
    """Raises AwsError AccessDenied if the request expects another owner, and
    InvalidBucketOwnerAWSAccountID for what is no account."""
    for name in _EXPECTATIONS:
        account_id = exchange.headers.get(name)
        if account_id is not None and not _ACCOUNT_ID.fullmatch(account_id):
            raise AwsError(
                "InvalidBucketOwnerAWSAccountID",
                "The value of the expected bucket owner parameter must be an AWS Account ID... "
                f"[{account_id}]",
                400,
            )
        if account_id is not None and account_id != exchange.call.settings.account_id:
            raise AwsError(
                "AccessDenied",
                f"Access Denied. The owner is account {exchange.call.settings.account_id}, not "
                f"{account_id} as {name} expects.",
                403,
            )


def owner_element(account_id: str) -> str:
    return element("Owner", text("ID", canonical_id(account_id)))


def initiator_element(account_id: str) -> str:
    name = text("DisplayName", account_id)
    return element("Initiator", text("ID", canonical_id(account_id)), name)


def canonical_id(account_id: str) -> str:
    """Returns S3's user id of an account: 64 hexadecimal digits."""
    return hashlib.sha256(account_id.encode()).hexdigest()


_HEADER = "x-amz-acl"
_PRIVATE = "private"
_OWNERS_CONTROL = "bucket-owner-full-control"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_GROUPS = "http://acs.amazonaws.com/groups/"
_EVERYBODY = f"{_GROUPS}global/AllUsers"
_ANY_ACCOUNT = f"{_GROUPS}global/AuthenticatedUsers"
_LOG_DELIVERY = f"{_GROUPS}s3/LogDelivery"

Grants = tuple[tuple[str, str], ...]
"""group URI and permission"""

_GRANTS: Mapping[str, Grants] = {
    _PRIVATE: (),
    "public-read": ((_EVERYBODY, "READ"),),
    "public-read-write": ((_EVERYBODY, "READ"), (_EVERYBODY, "WRITE")),
    "authenticated-read": ((_ANY_ACCOUNT, "READ"),),
    "log-delivery-write": ((_LOG_DELIVERY, "WRITE"), (_LOG_DELIVERY, "READ_ACP")),
}
_PUBLIC = ("public-read", "public-read-write", "authenticated-read")
_OF_BUCKETS_ONLY = "log-delivery-write"
_OWNERS_ALONE = ("bucket-owner-read", _OWNERS_CONTROL)
"""lists without effect, as one account owns buckets and objects"""
_EXEC_READ = "aws-exec-read"


async def written_acl(exchange: S3Exchange) -> str:
    """Returns the object's canned list. Raises AwsError."""
    name = exchange.headers.get(_HEADER)
    if name is None:
        return _PRIVATE
    acl = _canned(name, of_object=True)
    bucket = await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    _check_allowed(acl, bucket.settings, is_owners=name == _OWNERS_CONTROL)
    return acl


def new_bucket_acl(headers: Mapping[str, str], settings: BucketSettings) -> str:
    """Returns CreateBucket's canned list. Raises AwsError."""
    name = headers.get(_HEADER)
    if name is None:
        return _PRIVATE
    acl = _canned(name, of_object=False)
    if acl != _PRIVATE and not settings.takes_acls:
        raise acl_with_ownership()
    block = settings.public_access_block
    if acl in _PUBLIC and block is not None and block.block_public_acls:
        raise AwsError(
            "InvalidBucketAclWithBlockPublicAccessError",
            "Bucket cannot have public ACLs set with BlockPublicAccess enabled",
            400,
        )
    return acl


def acl_with_ownership() -> AwsError:
    return AwsError(
        "InvalidBucketAclWithObjectOwnership",
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        400,
    )


async def get_acl(exchange: S3Exchange) -> Response:
    settings = (await exchange.run(lambda: exchange.store.bucket(exchange.bucket))).settings
    acl = settings.acl
    if exchange.key:
        info = await exchange.run(lambda: exchange.store.head(exchange.bucket, exchange.key))
        acl = info.attributes.acl
    grants = _GRANTS[acl] if settings.takes_acls else ()
    account = exchange.call.settings.account_id
    listed = [_grant("CanonicalUser", text("ID", canonical_id(account)), "FULL_CONTROL")]
    listed += [_grant("Group", text("URI", group), may) for group, may in grants]
    inner = [owner_element(account), element("AccessControlList", *listed)]
    body = document("AccessControlPolicy", inner)
    return Response(200, {"content-type": "application/xml"}, body)


async def put_acl(exchange: S3Exchange) -> Response:
    data = await read_document(exchange)
    name = exchange.headers.get(_HEADER)
    if name is not None and data.strip():
        raise AwsError("UnexpectedContent", "This request does not support content", 400)
    if name is None and not data.strip():
        raise AwsError(
            "MissingSecurityHeader",
            "Your request was missing a required header",
            400,
            MissingHeaderName=_HEADER,
        )
    bucket = await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    if name is None:
        acl = _read_policy(exchange, data, bucket.settings)
        is_owners = acl == _PRIVATE
    else:
        acl, is_owners = _canned(name, of_object=bool(exchange.key)), name == _OWNERS_CONTROL
    _check_allowed(acl, bucket.settings, is_owners=is_owners)
    await exchange.run(lambda: _keep(exchange, acl))
    return Response(200)


def _keep(exchange: S3Exchange, acl: str) -> None:
    if exchange.key:
        exchange.store.set_acl(exchange.bucket, exchange.key, acl)
        return

    def change(settings: BucketSettings) -> BucketSettings:
        return msgspec.structs.replace(settings, acl=acl)

    exchange.store.change_bucket(exchange.bucket, change)


def _canned(name: str, *, of_object: bool) -> str:
    if name in _OWNERS_ALONE or (name == _EXEC_READ and not of_object):
        return _PRIVATE
    if name == _EXEC_READ:
        return name
    if name not in _GRANTS or (of_object and name == _OF_BUCKETS_ONLY):
        raise invalid_argument("The canned ACL is not known.", _HEADER, name)
    return name


def _check_allowed(acl: str, settings: BucketSettings, *, is_owners: bool) -> None:
    """Raises AwsError if the bucket refuses the list. `is_owners` means the request names
    `bucket-owner-full-control`."""
    if not settings.takes_acls:
        if not is_owners:
            raise _not_supported()
        return
    if acl == _EXEC_READ:
        raise not_implemented(f"The canned ACL {acl}")
    block = settings.public_access_block
    if acl in _PUBLIC and block is not None and block.block_public_acls:
        raise AwsError(
            "AccessDenied",
            "Access Denied because public ACLs are prevented by the BlockPublicAcls setting in S3 "
            "Block Public Access.",
            403,
        )


def _not_supported() -> AwsError:
    return AwsError("AccessControlListNotSupported", "The bucket does not allow ACLs", 400)


def _read_policy(exchange: S3Exchange, data: bytes, settings: BucketSettings) -> str:
    lists = children(parse(data, "AccessControlPolicy"), "AccessControlList")
    if len(lists) != 1:
        raise malformed_xml()
    owner = canonical_id(exchange.call.settings.account_id)
    granted = {_read_grant(grant) for grant in children(lists[0], "Grant")}
    others = granted - {(owner, "FULL_CONTROL")}
    for acl, grants in _GRANTS.items():
        if others == set(grants) and len(others) < len(granted):
            if exchange.key and acl == _OF_BUCKETS_ONLY:
                break
            return acl
    if not settings.takes_acls:
        raise _not_supported()
    raise not_implemented("An ACL whose grants are not those of a canned ACL")


def _read_grant(grant: Element) -> tuple[str, str]:
    grantees = children(grant, "Grantee")
    if len(grantees) != 1:
        raise malformed_xml()
    name = child_text(grantees[0], "ID") or child_text(grantees[0], "URI") or ""
    return name, child_text(grant, "Permission") or ""


def _grant(kind: str, grantee_elements: str, permission: str) -> str:
    grantee = f'<Grantee xmlns:xsi="{_XSI}" xsi:type="{kind}">{grantee_elements}</Grantee>'
    return element("Grant", grantee, text("Permission", permission))
