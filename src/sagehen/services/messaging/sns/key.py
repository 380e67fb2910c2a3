"""The RSA key that signs messages, and its certificate.

As a program, makes both at a path. `cryptography` takes 8 MiB, which a control that signs nothing
saves.
"""

import datetime
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from sagehen.base.credentials import write_secret
from sagehen.base.errors import HomeError

__all__ = ["make_key", "read_key", "sign"]

_KEY_BITS = 2048
_CERTIFICATE_DAYS = 3650
_HASHES: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}


def read_key(pem: bytes) -> rsa.RSAPrivateKey:
    """Raises HomeError for other keys."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise HomeError("The key that signs messages is no RSA key.")
    return key


def sign(key: rsa.RSAPrivateKey, text: str, version: str) -> bytes:
    """Uses PKCS#1 v1.5; `version` is a SignatureVersion."""
    return key.sign(text.encode(), padding.PKCS1v15(), _HASHES[version])


def make_key(path: Path) -> None:
    """Writes key and certificate to one PEM file."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    whole = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + _certificate(key).public_bytes(serialization.Encoding.PEM)
    write_secret(path, whole)


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


if __name__ == "__main__":
    make_key(Path(sys.argv[1]))
