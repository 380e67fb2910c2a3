"""SNS as its tests use it."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.plain_http import ask
from support.receiver import Receiver

__all__ = [
    "ACCOUNT",
    "assert_signed",
    "attributes_of",
    "code_of",
    "confirmed",
    "message_of",
    "refusal",
]

ACCOUNT = "000000000000"


def code_of(call: Callable[..., Any], **params: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer = caught.value.response
    assert answer["Error"]["Message"]
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def message_of(call: Callable[..., Any], **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    return str(caught.value.response["Error"]["Message"])


def refusal(url: str, data: bytes | None = None) -> tuple[int, str]:
    """Status and code of what is asked without a signature."""
    answer = ask(url, data)
    return answer.status, answer.body.decode().partition("<Code>")[2].partition("<")[0]


def assert_signed(posted: dict[str, Any], *keys: str) -> None:
    """As a receiver does it: fetch the certificate, put together what is signed, verify."""
    certificate = x509.load_pem_x509_certificate(ask(posted["SigningCertURL"]).body)
    signed = "".join(f"{key}\n{posted[key]}\n" for key in keys if key in posted)
    kind = {"1": hashes.SHA1(), "2": hashes.SHA256()}[posted["SignatureVersion"]]
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    signature = base64.b64decode(posted["Signature"])
    key.verify(signature, signed.encode(), padding.PKCS1v15(), kind)


def confirmed(sns: Any, receiver: Receiver, topic: str, path: str, **attributes: str) -> str:
    sns.subscribe(
        TopicArn=topic, Protocol="http", Endpoint=receiver.url(path), Attributes=attributes
    )
    answer = receiver.confirm(path)
    return answer.partition("<SubscriptionArn>")[2].partition("<")[0]


def attributes_of(sns: Any, arn: str) -> dict[str, str]:
    return sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
