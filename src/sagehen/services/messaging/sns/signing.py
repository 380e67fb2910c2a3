"""Signs messages with a key made at first start, and serves its certificate at SigningCertURL."""

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
    """Signs as SNS does: RSA with PKCS#1 v1.5, in Base64."""

    def __init__(self, pem: bytes, certificate: bytes) -> None:
        """`pem` contains the key; `certificate` is also PEM."""
        self._pem = pem
        self.certificate = certificate
        digest = hashlib.sha256(certificate).hexdigest()[:32]
        self.certificate_path = f"/_sagehen/sns/SimpleNotificationService-{digest}.pem"
        """in the form that verifiers expect from SNS"""

    def sign(self, text: str, version: str) -> str:
        """`version` is a topic's SignatureVersion."""
        from sagehen.services.messaging.sns.key import sign

        return base64.b64encode(sign(self._key, text, version)).decode()

    @cached_property
    def _key(self) -> "RSAPrivateKey":
        from sagehen.services.messaging.sns.key import read_key

        return read_key(self._pem)


def load_signer(path: Path) -> MessageSigner:
    """Loads the key and certificate at `path`, and makes them if the file does not exist.


    Raises:
        HomeError: the file is not a readable key with its certificate.
    """
    if not path.exists():
        _make(path)
    try:
        # Check that key and certificate are whole and match; asyncio imports ssl anyway.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        kept = path.read_bytes()
        certificate = _certificate_in(kept)
    except (OSError, ValueError) as error:
        raise HomeError(
            f"The key that signs messages in {path} cannot be read ({error}). Mend the file, or "
            "remove it: the next `sagehen up` then makes a new one."
        ) from error
    return MessageSigner(kept, certificate)


def _make(path: Path) -> None:
    """Run in a subprocess, so that its memory is freed when it ends."""
    command = [sys.executable, "-m", "sagehen.services.messaging.sns.key", str(path)]
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=_MAKE_SECONDS, check=False
    )
    if made.returncode:
        last = made.stderr.strip().rpartition("\n")[2]
        raise HomeError(f"The key that signs messages in {path} cannot be made: {last}")


def _certificate_in(pem: bytes) -> bytes:
    """Returns the first certificate, rewrapped to the usual line length."""
    found = _CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("there is no certificate in it")
    der = ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))
    return ssl.DER_cert_to_PEM_cert(der).encode()


def certificate_route(signer: MessageSigner) -> Route:
    """Serves the certificate without authentication; clients may cache it, as the path changes with
    it."""

    async def tell(_: Request) -> Response:
        return Response(signer.certificate, media_type="application/x-pem-file")

    return Route(signer.certificate_path, tell)
