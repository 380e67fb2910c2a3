"""The one owner of everything: the account. And the access lists that say so."""

import hashlib
from xml.etree.ElementTree import Element

from sagehen.api.s3.body import read_document
from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.faults import not_implemented
from sagehen.api.s3.xml import child_text, children, document, element, parse, text
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Response

__all__ = ["check_expected_owner", "get_acl", "owner_element", "put_acl"]

_EXPECTATIONS = ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner")
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


def check_expected_owner(exchange: Exchange) -> None:
    """Raises AwsError AccessDenied where the caller expects another owner."""
    for name in _EXPECTATIONS:
        given = exchange.headers.get(name)
        if given is not None and given != exchange.call.settings.account_id:
            raise AwsError(
                "AccessDenied",
                f"Access Denied. The owner is account {exchange.call.settings.account_id}, not "
                f"{given} as {name} expects.",
                403,
            )


def owner_element(account_id: str, name: str = "Owner") -> str:
    return element(name, text("ID", _canonical_id(account_id)), text("DisplayName", account_id))


async def get_acl(exchange: Exchange) -> Response:
    """The owner may do everything; nobody else is known."""
    await _check_there(exchange)
    account = exchange.call.settings.account_id
    grantee = (
        f'<Grantee xmlns:xsi="{_XSI}" xsi:type="CanonicalUser">'
        f"{text('ID', _canonical_id(account))}{text('DisplayName', account)}</Grantee>"
    )
    grant = element("Grant", grantee, text("Permission", "FULL_CONTROL"))
    inner = [owner_element(account), element("AccessControlList", grant)]
    body = document("AccessControlPolicy", inner)
    return Response(200, {"content-type": "application/xml"}, body)


async def put_acl(exchange: Exchange) -> Response:
    """A canned ACL is accepted and changes nothing: only the account's own keys sign anyway."""
    data = await read_document(exchange)
    if data.strip():
        for grants in children(parse(data, "AccessControlPolicy"), "AccessControlList"):
            for grant in children(grants, "Grant"):
                _check_grant(exchange, grant)
    await _check_there(exchange)
    return Response(200)


def _check_grant(exchange: Exchange, grant: Element) -> None:
    owner = _canonical_id(exchange.call.settings.account_id)
    grantees = [child_text(grantee, "ID") for grantee in children(grant, "Grantee")]
    if grantees != [owner] or child_text(grant, "Permission") != "FULL_CONTROL":
        raise not_implemented("A grant to anybody but the owner")


async def _check_there(exchange: Exchange) -> None:
    if exchange.key:
        await exchange.run(lambda: exchange.store.head(exchange.bucket, exchange.key))
    else:
        await exchange.run(lambda: exchange.store.bucket(exchange.bucket))


def _canonical_id(account_id: str) -> str:
    """S3's other name of an account: 64 hexadecimal digits."""
    return hashlib.sha256(account_id.encode()).hexdigest()
