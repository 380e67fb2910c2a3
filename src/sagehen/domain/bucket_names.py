"""What a bucket may be called."""

import ipaddress
import re

__all__ = ["is_bucket_name"]

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_RESERVED_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def is_bucket_name(name: str) -> bool:
    """Whether S3's rules for general purpose buckets allow it."""
    return (
        _NAME.fullmatch(name) is not None
        and ".." not in name
        and not name.startswith(_RESERVED_STARTS)
        and not name.endswith(_RESERVED_ENDS)
        and not _is_address(name)
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True
