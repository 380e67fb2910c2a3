"""The URL that a server is reached on."""

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.settings import Settings

__all__ = ["client_url", "public_url"]


def public_url(settings: "Settings") -> str:
    """Where links in messages lead: as the settings say, else to where clients find the server."""
    return (settings.public_url or client_url(settings.host, settings.port)).rstrip("/")


def client_url(host: str, port: int) -> str:
    """The address for clients of a server that listens on `host`.

    Always an IP address: with a name, the AWS SDKs put an S3 bucket's name before it.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = ipaddress.ip_address(socket.gethostbyname(host))
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"
