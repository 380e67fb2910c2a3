"""The key that signs messages, and the certificate that others check them with."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from sagehen.base.errors import HomeError
from sagehen.services.messaging.sns.key import make_key, read_key, sign


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "messages.pem"
    make_key(path)
    return path


@pytest.mark.parametrize(("version", "digest"), [("1", hashes.SHA1()), ("2", hashes.SHA256())])
def test_the_certificate_proves_a_signature(
    path: Path, version: str, digest: hashes.HashAlgorithm
) -> None:
    signature = sign(read_key(path.read_bytes()), "text ü", version)
    public = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    public.verify(signature, "text ü".encode(), padding.PKCS1v15(), digest)


def test_the_file_is_its_user_s_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_another_kind_of_key_is_refused() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(HomeError, match="no RSA key"):
        read_key(pem)
