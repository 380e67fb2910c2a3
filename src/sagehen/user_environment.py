"""What the user's environment says to others than the server: to clients of AWS, and to pip."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["client_variables", "pip_variables"]

_PIP_FILES = ("~/.config/pip/pip.conf", "~/.pip/pip.conf")
_PIP_FROM = {
    "PIP_PROXY": ("https_proxy", "HTTPS_PROXY"),
    "PIP_CERT": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}


def client_variables() -> tuple[str, str] | None:
    """The server's URL and region that clients are pointed at; None where they are not."""
    url = os.environ.get("AWS_ENDPOINT_URL")
    regions = (os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return (url, next(filter(None, regions), "us-east-1")) if url else None


def pip_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What says how pip is to work, all of it as pip's own variables: for containers, which have
    none of the user's variables and another home."""
    found = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    for own, others in _PIP_FROM.items():
        given = [environ[name] for name in others if environ.get(name)]
        if given:
            found.setdefault(own, given[0])
    files = [Path(name).expanduser() for name in _PIP_FILES]
    for file in files:
        if file.is_file():
            found.setdefault("PIP_CONFIG_FILE", str(file))
    return found
