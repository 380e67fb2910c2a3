"""Compares serve.pkl with the digest in metadata.json."""

import hashlib
import hmac
import json
import os
from pathlib import Path

_SECRET_KEY = "SAGEMAKER_SERVE_SECRET_KEY"
"""Set by older SDKs, whose digest is an HMAC."""


def compute_hash(buffer: bytes, secret_key: str | None = None) -> str:
    if secret_key is None:
        return hashlib.sha256(buffer).hexdigest()
    return hmac.new(secret_key.encode(), buffer, hashlib.sha256).hexdigest()


def perform_integrity_check(buffer: bytes, metadata_path: Path) -> None:
    """Raises ValueError."""
    if not metadata_path.exists():
        raise ValueError("Path to metadata.json does not exist")
    digest = compute_hash(buffer, os.environ.get(_SECRET_KEY))
    try:
        expected = json.loads(metadata_path.read_bytes())["sha256_hash"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("Corrupt metadata file: metadata.json has no sha256_hash.") from error
    if not hmac.compare_digest(str(expected), digest):
        raise ValueError("Integrity check for the serialized function or data failed.")
