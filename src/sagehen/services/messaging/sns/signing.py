"""Signs messages with a key made at first start, and serves its certificate."""

import base64
import hashlib
import re
import ssl
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.base.errors import HomeError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

__all__ = ["MessageSigner", "certificate_route", "load_signer"]

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAKE_SECONDS = 60.0


class MessageSigner:
    """Uses RSA with PKCS#1 v1.5, as SNS does."""

    def __init__(self, pem: bytes, certificate: bytes) -> None:
        """`pem` contains the key; `certificate` is PEM, too."""
        self._pem = pem
        self.certificate = certificate
        digest = hashlib.sha256(certificate).hexdigest()[:32]
        self.certificate_path = f"/_sagehen/sns/SimpleNotificationService-{digest}.pem"
        """form expected by verifiers of SNS"""

    def sign(self, text: str, version: str) -> str:
        from sagehen.services.messaging.sns.key import sign

        return base64.b64encode(sign(self._key, text, version)).decode()

    @cached_property
    def _key(self) -> "RSAPrivateKey":
        from sagehen.services.messaging.sns.key import read_key

        return read_key(self._pem)


def load_signer(path: Path) -> MessageSigner:
    """Makes key and certificate if missing; raises HomeError for an unreadable file."""
    if not path.exists():
        _make(path)
    try:
        # Checks that key and certificate match; asyncio imports ssl anyway.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        pem = path.read_bytes()
        certificate = _certificate_in(pem)
    except (OSError, ValueError) as error:
        raise HomeError(
            f"The key that signs messages in {path} cannot be read ({error}). Mend the file, or "
            "remove it: the next `sagehen up` then makes a new one."
        ) from error
    return MessageSigner(pem, certificate)


def _make(path: Path) -> None:
    """Runs a subprocess, to free its memory at the end."""
    command = [sys.executable, "-m", "sagehen.services.messaging.sns.key", str(path)]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=_MAKE_SECONDS, check=False
    )
    if process.returncode:
        reason = process.stderr.strip().rpartition("\n")[2]
        raise HomeError(f"The key that signs messages in {path} cannot be made: {reason}")


def _certificate_in(pem: bytes) -> bytes:
    """Rewraps the first certificate to the usual line length."""
    match = _CERTIFICATE.search(pem)
    if match is None:
        raise ValueError("there is no certificate in it")
    der = ssl.PEM_cert_to_DER_cert(match[0].decode("ascii"))
    return ssl.DER_cert_to_PEM_cert(der).encode()


def certificate_route(signer: MessageSigner) -> Route:
    """Needs no authentication. The path changes with the certificate, so clients may cache."""

    async def serve(_: Request) -> Response:
        return Response(signer.certificate, media_type="application/x-pem-file")

    return Route(signer.certificate_path, serve)
