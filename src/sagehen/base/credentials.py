"""The access key and the token of a home, made at first start and readable by its owner only."""

import json
import os
import secrets
import string
from dataclasses import dataclass
from pathlib import Path

from sagehen.base.errors import HomeError
from sagehen.base.files import sync_folder

__all__ = [
    "ACCESS_KEY_PREFIX",
    "Credentials",
    "load_credentials",
    "load_token",
    "make_credentials",
    "make_token",
    "write_secret",
]

ACCESS_KEY_PREFIX = "AKSH"
_KEY_ALPHABET = string.ascii_uppercase + "234567"


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, secret_key='…')"


def make_credentials(path: Path) -> Credentials:
    """Makes a missing key. Raises HomeError."""
    if not path.exists():
        keys = {
            "access_key": ACCESS_KEY_PREFIX
            + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(16)),
            "secret_key": secrets.token_urlsafe(30),
        }
        write_secret(path, json.dumps(keys).encode())
    return load_credentials(path)


def make_token(path: Path) -> None:
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(30).encode())


def load_token(path: Path) -> str:
    """Raises HomeError."""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise HomeError(
            f"The token in {path} cannot be read ({error.strerror}). A server makes a missing "
            "token when it starts: sagehen up"
        ) from error
    if not token:
        raise HomeError(
            f"The token in {path} is empty. Remove the file: the next `sagehen up` makes a token."
        )
    return token


def write_secret(path: Path, secret: bytes) -> None:
    """Writes a file that only its owner may read, all or nothing."""
    # A crash must not leave a partial key.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    sync_folder(path.parent)


def load_credentials(path: Path) -> Credentials:
    """Raises HomeError."""
    try:
        keys = json.loads(path.read_text())
        return Credentials(access_key=keys["access_key"], secret_key=keys["secret_key"])
    except FileNotFoundError:
        raise HomeError(
            f"There are no keys in {path.parent}: no server has run with this home yet. "
            "Start one with `sagehen up`."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HomeError(
            f"The keys in {path} cannot be read ({error}). Correct the file, or remove it: "
            "the next `sagehen up` then makes new keys."
        ) from error
