"""The URLs of a server."""

import ipaddress
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["client_url", "public_url", "reachable_urls"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def public_url(settings: "Settings") -> str:
    """Returns the base of links in messages."""
    return (settings.public_url or client_url(settings.host, settings.port)).rstrip("/")


def client_url(host: str, port: int) -> str:
    """Returns the URL for local clients of a server that listens on `host`.

    Always an IP address: AWS SDKs prefix a host name with the bucket's name.
    """
    address = _address_of(host)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return _url(address, port)


def reachable_urls(host: str, port: int) -> list[str]:
    """Returns the URLs for other machines; empty for a loopback address."""
    address = _address_of(host)
    if not address.is_unspecified:
        return [] if address.is_loopback else [_url(address, port)]
    addresses = [
        candidate for candidate in _own_addresses() if candidate.version <= address.version
    ]
    return [
        _url(candidate, port)
        for candidate in sorted(
            addresses, key=lambda candidate: (candidate.version, int(candidate))
        )
    ]


def _own_addresses() -> Iterator[_Address]:
    """Yields this machine's addresses, except loopback and link-local ones."""
    import psutil  # slow to import, and only `up` needs it

    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(entry.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local):
                    yield address


def _address_of(host: str) -> _Address:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.ip_address(socket.gethostbyname(host))


def _url(address: _Address, port: int) -> str:
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"
