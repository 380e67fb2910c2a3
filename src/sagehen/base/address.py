"""The URL that a server is reached on."""

import ipaddress
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["client_url", "public_url", "reachable_urls"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def public_url(settings: "Settings") -> str:
    """Where links in messages lead: as the settings say, else to where clients find the server."""
    return (settings.public_url or client_url(settings.host, settings.port)).rstrip("/")


def client_url(host: str, port: int) -> str:
    """The address for clients of a server that listens on `host`.

    Always an IP address: with a name, the AWS SDKs put an S3 bucket's name before it.
    """
    address = _address_of(host)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return _url(address, port)


def reachable_urls(host: str, port: int) -> list[str]:
    """The addresses for clients on other machines of a server that listens on `host`.

    None where it listens on a loopback address.
    """
    address = _address_of(host)
    if not address.is_unspecified:
        return [] if address.is_loopback else [_url(address, port)]
    found = [one for one in _own_addresses() if one.version <= address.version]
    return [_url(one, port) for one in sorted(found, key=lambda one: (one.version, int(one)))]


def _own_addresses() -> Iterator[_Address]:
    """Of this machine, as others see it: no loopback, and none that needs an interface's name."""
    import psutil  # `up` alone needs it: the other commands would wait for it

    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(one.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local):
                    yield address


def _address_of(host: str) -> _Address:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.ip_address(socket.gethostbyname(host))


def _url(address: _Address, port: int) -> str:
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"
