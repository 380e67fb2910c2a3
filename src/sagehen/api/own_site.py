"""Keeps web pages from having own paths do something.

Nobody signs own paths: whoever reaches the port may use them. A browser on this machine reaches it
too, on behalf of any page that it shows. It says so: in `Origin` whose page it is, in
`Sec-Fetch-Site` whether that is ours.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["foreign_page"]

_OURS = ("same-origin", "none")


def foreign_page(headers: Mapping[str, str]) -> str | None:
    """Why a request must have been made by another site's page; None where nothing says so."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        return f"its Sec-Fetch-Site is {site}"
    origin = headers.get("origin")
    if origin is None:
        return None
    host = headers.get("host", "")
    if urlsplit(origin).netloc != host:
        return f"its Origin {origin} is not this server's"
    # A page may have had its own name lead to this address since it was loaded.
    if not _leads_here_only(host):
        return f"its Host {host} is a name that may have been made to lead here; use the address"
    return None


def _leads_here_only(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
