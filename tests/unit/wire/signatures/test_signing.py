"""Our own signatures, with the verifier as their judge."""

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.signatures.signing import Signer
from sagehen.wire.signatures.sigv4 import Verifier

NOON = 1_700_000_000.0


@pytest.fixture
def verifier() -> Verifier:
    return Verifier({"AKIDEXAMPLE": "secret"}, SYSTEM, "us-east-1")


def test_signatures_are_right_on_any_day(verifier: Verifier) -> None:
    signer = Signer("AKIDEXAMPLE", "secret", "us-east-1")
    for now in (NOON, NOON + 0.5, NOON + 1, NOON + 86_400):
        headers = signer.sign("PUT", "/b/a%20b", "partNumber=1", {"host": "h"}, now)
        request = Request("PUT", "/b/a%20b", "partNumber=1", headers)
        assert verifier.verify(request, None, now, "s3").access_key == "AKIDEXAMPLE"


def test_headers_are_signed(verifier: Verifier) -> None:
    signer = Signer("AKIDEXAMPLE", "secret", "us-east-1")
    headers = signer.sign("GET", "/b/k", "", {"host": "h", "if-match": "a"}, NOON)
    with pytest.raises(AwsError, match="signature"):
        verifier.verify(Request("GET", "/b/k", "", {**headers, "if-match": "b"}), None, NOON, "s3")
