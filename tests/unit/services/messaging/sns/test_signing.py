"""The signer: it reads its file at start, and is known by its certificate."""

import base64
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.base.errors import HomeError
from sagehen.services.messaging.sns.key import make_key
from sagehen.services.messaging.sns.signing import MessageSigner, certificate_route, load_signer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "messages.pem"
    make_key(path)
    return path


@pytest.fixture
def signer(path: Path) -> MessageSigner:
    return load_signer(path)


def test_signatures_are_base64_and_differ_by_version(signer: MessageSigner) -> None:
    first, second = signer.sign("text", "1"), signer.sign("text", "2")
    assert len(base64.b64decode(first, validate=True)) == 256
    assert first != second
    assert signer.sign("text", "1") == first


def test_the_certificate_is_served_at_a_path_of_its_own(signer: MessageSigner) -> None:
    client = TestClient(Starlette(routes=[certificate_route(signer)]))
    answer = client.get(signer.certificate_path)
    assert answer.content == signer.certificate
    assert b"PRIVATE" not in answer.content
    other = MessageSigner(b"", signer.certificate + b"\n")
    assert other.certificate_path != signer.certificate_path


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "messages.pem"
    broken.write_bytes(content)
    with pytest.raises(HomeError, match="Mend the file, or remove it"):
        load_signer(broken)
