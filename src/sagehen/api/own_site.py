"""Keeps web pages away from what needs no signature.

Whoever reaches the port may ask it. A browser on this machine reaches it too, on behalf of any page
that it shows. The browser says so: in `Host` by which name it came here, in `Origin` whose page it
shows, in `Sec-Fetch-Site` whether that is ours. A page of another site may have had its own name
lead to this address since it was loaded (DNS rebinding); to the browser, that page is then ours.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

__all__ = ["OwnSite", "is_loopback"]

_OURS = ("same-origin", "none")


class OwnSite:
    """The names by which this server may be asked without a signature.

    Those are `localhost`, every IP address, the host of the setting `public_url` and those of
    `allowed_hosts`.
    """

    def __init__(self, public_url: str | None = None, allowed_hosts: Iterable[str] = ()) -> None:
        names = [urlsplit(public_url).hostname] if public_url else []
        self._names = {"localhost", *filter(None, names), *(one.lower() for one in allowed_hosts)}

    def foreign_host(self, headers: Mapping[str, str]) -> str | None:
        """Why a request was sent to a name that need not be this server's; None where it is.

        HTTP/1.0 may leave the name out; no browser does.
        """
        host = headers.get("host")
        if host is None or self._is_ours(host):
            return None
        return (
            f"its Host {host[:128]} is a name that may have been made to lead here; use the "
            "address, or have the name in the setting allowed_hosts"
        )

    def foreign_page(self, headers: Mapping[str, str]) -> str | None:
        """Why a request must have been made by another site's page; None where nothing says so."""
        reason = self.foreign_host(headers)
        if reason is not None:
            return reason
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OURS:
            return f"its Sec-Fetch-Site is {site}"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
            return f"its Origin {origin} is not this server's"
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        return name in self._names or _address(name) is not None


def is_loopback(host: str) -> bool:
    """Whether a Host header, or an address to listen on, leads to this machine alone."""
    name = _name_in(host)
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _name_in(host: str) -> str:
    """Without its port; lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
