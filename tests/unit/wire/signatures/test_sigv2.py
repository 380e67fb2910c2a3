"""Links of S3's signature version 2, signed by botocore."""

import time
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from botocore.auth import HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.signatures.sigv2 import verify_old_link

KEY, SECRET = "AKEXAMPLE", "secret"
VALID_SECONDS = 600


def link(query: str = "", secret: str = SECRET) -> str:
    request = AWSRequest("GET", f"http://host/bucket/key{query}")
    HmacV1QueryAuth(Credentials(KEY, secret), expires=VALID_SECONDS).add_auth(request)
    return str(request.url)


def verify(url: str, after: float = 0.0) -> str:
    parts = urlsplit(url)
    return verify_old_link(
        Request("GET", parts.path, parts.query, {}, b""), {KEY: SECRET}, time.time() + after
    )


def refusal(url: str, after: float = 0.0) -> tuple[str, str]:
    with pytest.raises(AwsError) as refused:
        verify(url, after)
    return refused.value.code, refused.value.message


def test_a_link_is_good_until_it_expires() -> None:
    assert verify(link()) == KEY
    assert verify(link("?acl")) == KEY
    assert refusal(link(), VALID_SECONDS + 1) == ("AccessDenied", "Request has expired")


def test_a_link_of_another_secret_or_for_something_else_is_refused() -> None:
    assert refusal(link(secret="guessed"))[0] == "SignatureDoesNotMatch"
    assert refusal(link().replace("/key?", "/other?"))[0] == "SignatureDoesNotMatch"
    assert refusal(link().replace(KEY, "unknown"))[0] == "InvalidAccessKeyId"


@pytest.mark.parametrize("expires", ["", "soon", "-1", "1e9", "١٢٣", "9" * 13])
def test_an_end_that_is_no_plain_number_is_refused(expires: str) -> None:
    url, _, rest = link().partition("Expires=")
    code, message = refusal(f"{url}Expires={quote(expires)}{rest.lstrip('0123456789')}")
    assert code == "AuthorizationQueryParametersError"
    assert message.startswith("Query-string authentication requires")


def test_line_break_in_a_header_hides_no_other_header() -> None:
    """Else who holds a link could leave out the headers that it was signed with."""
    headers = {"x-amz-security-token": "t", "x-amz-tagging": "k=v"}
    request = AWSRequest("GET", "http://host/bucket/key", headers=headers)
    HmacV1QueryAuth(Credentials(KEY, SECRET)).add_auth(request)
    assert verify(str(request.url)) == KEY
    url, _, query = str(request.url).partition("?")
    signed = dict(parse_qsl(query))
    tagging = signed.pop("x-amz-tagging")
    merged = {**signed, "x-amz-security-token": f"t\nx-amz-tagging:{tagging}"}
    assert refusal(f"{url}?{urlencode(merged)}")[0] == "SignatureDoesNotMatch"
    del signed["x-amz-security-token"]
    merged = {**signed, "x-amz-security-token:t\nx-amz-tagging": tagging}
    assert refusal(f"{url}?{urlencode(merged)}")[0] == "SignatureDoesNotMatch"


def test_parameter_hides_no_other_parameter() -> None:
    """Else a link for a part of an upload would also write the object."""
    url = link("?partNumber=1&uploadId=x")
    assert verify(url) == KEY
    merged = url.replace("partNumber=1&uploadId=x", "partNumber=1%26uploadId%3Dx")
    code, message = refusal(merged)
    assert (code, message[:24]) == ("AccessDenied", "The parameter partNumber")
    assert verify(link("?response-content-disposition=attachment%3B%20filename%3Da%26b")) == KEY


def test_a_parameter_that_selects_another_operation_must_be_signed() -> None:
    code, message = refusal(f"{link()}&attributes")
    assert code == "AccessDenied"
    assert "do not sign the parameter attributes" in message
