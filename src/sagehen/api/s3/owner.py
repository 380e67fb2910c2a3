"""The one owner of everything: the account."""

import hashlib

from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.xml import element, text
from sagehen.wire.faults import AwsError

__all__ = ["canonical_id", "check_expected_owner", "owner_element"]

_EXPECTATIONS = ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner")


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
    return element(name, text("ID", canonical_id(account_id)), text("DisplayName", account_id))


def canonical_id(account_id: str) -> str:
    """S3's other name of an account: 64 hexadecimal digits."""
    return hashlib.sha256(account_id.encode()).hexdigest()
