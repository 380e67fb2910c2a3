"""Envelopes: their keys, what is signed, and a signature that a real key verifies."""

import base64
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sagehen.base.errors import HomeError
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sns.envelopes import Envelope, Links, seal, string_to_sign
from sagehen.services.messaging.sns.records import PostKind
from sagehen.services.messaging.sns.signing import MessageSigner, load_signer

LINKS = Links("http://host:1", "/_sagehen/sns/c.pem")
TOPIC = "arn:aws:sns:us-east-1:000000000000:t"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> MessageSigner:
    return load_signer(tmp_path_factory.mktemp("key") / "key.pem")


def envelope(**more: object) -> Envelope:
    fields = {
        "message_id": "id",
        "topic_arn": TOPIC,
        "subscription_arn": TOPIC + ":s",
        "message": "line 1\nline 2",
        "published_at": 1_700_000_000.1234,
    }
    return Envelope(**{**fields, **more})  # type: ignore[arg-type]


def test_what_is_signed_of_a_notification() -> None:
    posted = json.loads(
        seal(envelope(subject="s"), LINKS, lambda text, version: f"{version}:{text}")
    )
    assert posted["Signature"] == (
        "1:Message\nline 1\nline 2\nMessageId\nid\nSubject\ns\n"
        f"Timestamp\n2023-11-14T22:13:20.123Z\nTopicArn\n{TOPIC}\nType\nNotification\n"
    )
    without = string_to_sign({key: posted[key] for key in posted if key != "Subject"})
    assert "Subject" not in without


def test_what_is_signed_of_a_confirmation() -> None:
    made = envelope(kind=PostKind.SUBSCRIPTION_CONFIRMATION, token="t0k", signature_version="2")
    posted = json.loads(seal(made, LINKS, lambda text, version: f"{version}:{text}"))
    url = f"http://host:1/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t0k"
    assert posted["SubscribeURL"] == url
    assert posted["Signature"] == (
        f"2:Message\nline 1\nline 2\nMessageId\nid\nSubscribeURL\n{url}\n"
        f"Timestamp\n2023-11-14T22:13:20.123Z\nToken\nt0k\nTopicArn\n{TOPIC}\n"
        "Type\nSubscriptionConfirmation\n"
    )
    assert "UnsubscribeURL" not in posted


def test_attributes_are_there_only_where_there_are_some() -> None:
    attributes = {
        "s": MessageAttribute("String", "x"),
        "b": MessageAttribute("Binary", None, b"\x00\xff"),
    }
    posted = json.loads(seal(envelope(attributes=attributes), LINKS, lambda *_: ""))
    assert posted["MessageAttributes"] == {
        "s": {"Type": "String", "Value": "x"},
        "b": {"Type": "Binary", "Value": "AP8="},
    }
    posted = json.loads(seal(envelope(), LINKS, lambda *_: ""))
    assert "MessageAttributes" not in posted
    assert "Subject" not in posted


@pytest.mark.parametrize(("version", "kind"), [("1", hashes.SHA1()), ("2", hashes.SHA256())])
def test_signatures_hold(signer: MessageSigner, version: str, kind: hashes.HashAlgorithm) -> None:
    posted = json.loads(seal(envelope(signature_version=version), LINKS, signer.sign))
    key = x509.load_pem_x509_certificate(signer.certificate).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    signature = base64.b64decode(posted["Signature"])
    signed = string_to_sign(posted).encode()
    key.verify(signature, signed, padding.PKCS1v15(), kind)
    with pytest.raises(InvalidSignature):
        key.verify(signature, signed + b" ", padding.PKCS1v15(), kind)


def test_the_key_is_made_once_and_is_its_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    first, second = load_signer(path), load_signer(path)
    assert first.certificate == second.certificate
    assert first.certificate_path == second.certificate_path
    assert first.certificate_path.startswith("/_sagehen/sns/SimpleNotificationService-")
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "other.pem").write_text("no key")
    with pytest.raises(HomeError, match="remove it"):
        load_signer(tmp_path / "other.pem")


def test_a_key_and_a_certificate_of_another_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "1.pem", tmp_path / "2.pem"
    load_signer(first)
    certificate = load_signer(second).certificate
    key = first.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]
    (tmp_path / "mixed.pem").write_bytes(key + certificate)
    with pytest.raises(HomeError, match="remove it"):
        load_signer(tmp_path / "mixed.pem")


def test_the_certificate_is_as_its_library_writes_it(signer: MessageSigner) -> None:
    """Its digest is in a path that subscribers were told, by versions that wrote it so."""
    read = x509.load_pem_x509_certificate(signer.certificate)
    assert signer.certificate == read.public_bytes(serialization.Encoding.PEM)


def test_a_key_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="cannot be made: FileNotFoundError"):
        load_signer(tmp_path / "nowhere" / "key.pem")
