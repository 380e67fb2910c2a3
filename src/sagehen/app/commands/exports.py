"""Shell lines that point AWS tools at a server."""

import shlex

from sagehen.base.credentials import Credentials

__all__ = ["export_lines"]


def export_lines(url: str, credentials: Credentials, region: str) -> tuple[str, str]:
    key, secret = shlex.quote(credentials.access_key), shlex.quote(credentials.secret_key)
    return (
        f"export AWS_ENDPOINT_URL={shlex.quote(url)} AWS_REGION={region} "
        f"AWS_DEFAULT_REGION={region}",
        f"export AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={secret}",
    )
