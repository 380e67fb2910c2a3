"""Which server a template is applied to, and with whose keys."""

from pathlib import Path

import boto3

from sagehen.apply.aws import Aws
from sagehen.config import load_settings
from sagehen.credentials import load_credentials
from sagehen.errors import Unavailable
from sagehen.home import Home
from sagehen.user_environment import client_variables

__all__ = ["connect", "connect_home"]


def connect(home: Path | None, config: Path | None) -> Aws:
    """The server that AWS_ENDPOINT_URL names; without it, or with `home`, the one of that home.

    Raises:
        Unavailable: no server runs with that home.
        HomeError: it has no keys.
    """
    variables = client_variables()
    if variables is not None and home is None:
        url, region = variables
        return Aws(boto3.Session(), url, region, direct=False)
    return connect_home(home, config)


def connect_home(home: Path | None, config: Path | None) -> Aws:
    """The server of a home, and the keys that are in it; raises as `connect`."""
    settings = load_settings(config, home=home)
    place = Home(settings.home)
    if not place.address.exists():
        raise Unavailable(f"No server runs with the home {place.path}. Start one: sagehen up")
    keys = load_credentials(place.credentials)
    session = boto3.Session(
        aws_access_key_id=keys.access_key, aws_secret_access_key=keys.secret_key
    )
    return Aws(session, place.address.read_text(), settings.region, direct=True)
