"""The key that signs what is posted to subscribers, and its certificate: made at first start."""

import base64
import datetime
import hashlib
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from sagehen.errors import HomeError

__all__ = ["MessageSigner", "load_signer"]

_KEY_BITS = 2048
_CERTIFICATE_DAYS = 3650
_HASHES: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}


class MessageSigner:
    """Signs as SNS does: RSA with PKCS#1 v1.5, in Base64."""

    def __init__(self, key: rsa.RSAPrivateKey, certificate: bytes) -> None:
        """`certificate` is PEM."""
        self._key = key
        self.certificate = certificate
        digest = hashlib.sha256(certificate).hexdigest()[:32]
        self.certificate_path = f"/_sagehen/sns/SimpleNotificationService-{digest}.pem"
        """Of the form that verifiers know from SNS."""

    def sign(self, text: str, version: str) -> str:
        """The signature of `text`; `version` is a topic's SignatureVersion."""
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), _HASHES[version])
        return base64.b64encode(signature).decode()


def load_signer(path: Path) -> MessageSigner:
    """The key and certificate kept at `path`; new ones are made and kept if there are none.

    Raises:
        HomeError: the file is there but cannot be read as a key with its certificate.
    """
    if not path.exists():
        _make(path)
    try:
        kept = path.read_bytes()
        key = serialization.load_pem_private_key(kept, password=None)
        certificate = x509.load_pem_x509_certificate(kept)
    except (OSError, ValueError) as error:
        raise HomeError(
            f"The key that signs messages in {path} cannot be read ({error}). Mend the file, or "
            "remove it: the next `sagehen up` then makes a new one."
        ) from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise HomeError(f"The key that signs messages in {path} is no RSA key.")
    return MessageSigner(key, certificate.public_bytes(serialization.Encoding.PEM))


def _make(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    whole = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + _certificate(key).public_bytes(serialization.Encoding.PEM)
    # Written whole under another name: a crash half-way must not leave an unreadable key.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(whole)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)


def _certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sagehen notifications")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A receiver's clock may be behind ours.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_CERTIFICATE_DAYS))
        .sign(key, hashes.SHA256())
    )
