"""Presigned URLs of both ages work in a client that knows nothing of AWS."""

import http.client
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def ask(server: Any) -> Ask:
    """`ask(method, link, …)` gives status, headers and body."""

    def send(method: str, link: str, body: bytes | None = None, **headers: str) -> Any:
        parts = urlsplit(link)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{parts.path}?{parts.query}", body, named)
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    return send


@pytest.fixture(params=["s3", "s3v4"])
def signer(server: Any, request: pytest.FixtureRequest) -> Any:
    """A client that signs links in the older or the newer form."""
    return server.client(signature_version=request.param)


def test_a_link_writes_and_reads(signer: Any, bucket: str, ask: Ask) -> None:
    target = {"Bucket": bucket, "Key": "ä b+c/'d"}
    assert (
        ask("PUT", signer.generate_presigned_url("put_object", Params=target), b"hello")[0] == 200
    )
    link = signer.generate_presigned_url("get_object", Params=target)
    assert ask("GET", link)[2] == b"hello"
    override = {"ResponseContentType": "text/x-odd", "ResponseContentDisposition": "inline"}
    link = signer.generate_presigned_url("get_object", Params={**target, **override})
    status, headers, body = ask("GET", link)
    assert (status, body) == (200, b"hello")
    assert (headers["content-type"], headers["content-disposition"]) == ("text/x-odd", "inline")
    assert ask("GET", link, Range="bytes=1-2")[2] == b"el"


def test_a_link_is_good_for_what_it_names_only(signer: Any, bucket: str, ask: Ask) -> None:
    link = signer.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a"})
    assert ask("PUT", link, b"x")[0] == 403
    assert ask("GET", link.replace("/a?", "/b?"))[0] == 403
    assert ask("GET", link)[0] == 404


@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2", "head_bucket"])
def test_a_link_leads_to_a_bucket(signer: Any, bucket: str, ask: Ask, operation: str) -> None:
    link = signer.generate_presigned_url(operation, Params={"Bucket": bucket})
    method = "HEAD" if operation == "head_bucket" else "GET"
    assert ask(method, link)[0] == 200
    assert ask(method, link.replace(bucket, bucket + "x"))[0] == 403


@pytest.fixture
def old(server: Any) -> Any:
    return server.client(signature_version="s3")


@pytest.mark.parametrize(
    "added",
    [
        "tagging",
        "%74agging",
        "acl",
        "%61cl",
        "upload%49d=u",
        "response-content-t%79pe=text/x-odd",
        "attributes",
        "legal-hold",
        "%72etention",
    ],
)
def test_what_an_old_link_asks_for_is_signed(
    old: Any, s3: Any, bucket: str, ask: Ask, added: str
) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=b"hello")
    link = old.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a"})
    assert ask("GET", link)[2] == b"hello"
    status, headers, _ = ask("GET", f"{link}&{added}")
    assert (status, headers["content-type"]) == (403, "application/xml")


def test_an_old_link_says_everything_once(old: Any, bucket: str, ask: Ask) -> None:
    link = old.generate_presigned_url("list_objects", Params={"Bucket": bucket})
    for added in ("Expires=9999999999", "Signature=x", "%41WSAccessKeyId=x"):
        assert ask("GET", f"{link}&{added}")[0] == 400


@pytest.fixture
def link(server: Any) -> Callable[..., str]:
    """`link(method, path, parameters)`: a signed URL whose headers are in its query."""
    auth = S3SigV4QueryAuth(server.credentials, "s3", "us-east-1")

    def make(method: str, path: str, parameters: dict[str, str]) -> str:
        query = urlencode(parameters, quote_via=quote)
        request = AWSRequest(method=method, url=f"{server.url}{path}?{query}")
        auth.add_auth(request)
        return str(request.url)

    return make


def test_headers_that_somebody_adds_to_a_link_do_nothing(
    signer: Any, bucket: str, ask: Ask, s3: Any
) -> None:
    s3.put_object(Bucket=bucket, Key="secret", Body=b"secret")
    link = signer.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "mine"})
    status, _, _ = ask("PUT", f"{link}&x-amz-copy-source=/{bucket}/secret", b"own")
    # The older signature leaves out what it does not know, so that the parameter stays unheard.
    assert status == 403 or s3.get_object(Bucket=bucket, Key="mine")["Body"].read() == b"own"


def test_headers_in_a_signed_query_count(
    bucket: str, ask: Ask, s3: Any, link: Callable[..., str]
) -> None:
    written = link("PUT", f"/{bucket}/a", {"x-amz-meta-of": "漢", "x-amz-tagging": "k=v"})
    assert ask("PUT", written, b"x")[0] == 200
    status, headers, _ = ask("GET", link("GET", f"/{bucket}/a", {}))
    assert (status, headers["x-amz-tagging-count"]) == (200, "1")
    assert headers["x-amz-meta-of"].encode("latin-1").decode() == "漢"


def test_an_old_link_carries_headers_in_its_query(old: Any, s3: Any, bucket: str, ask: Ask) -> None:
    """boto3's default form; whoever holds the link sends no headers."""
    target = {"Bucket": bucket, "Key": "a"}
    headers = {"Metadata": {"venue": "a b"}, "Tagging": "k=v", "StorageClass": "STANDARD_IA"}
    link = old.generate_presigned_url("put_object", Params={**target, **headers})
    assert ask("PUT", link, b"x")[0] == 200
    found = s3.head_object(**target)
    assert (found["Metadata"], found["StorageClass"]) == ({"venue": "a b"}, "STANDARD_IA")
    assert s3.get_object_tagging(**target)["TagSet"] == [{"Key": "k", "Value": "v"}]
    assert ask("PUT", link, b"x", x_amz_tagging="k=v")[0] == 200, "may be sent, too"
    for other in ("&x-amz-meta-more=1", "&X-Amz-Meta-more=1"):
        assert ask("PUT", link + other, b"x")[0] == 403
    assert ask("PUT", link.replace("venue=a%20b", "venue=b"), b"x")[0] == 403
    assert ask("PUT", link, b"x", x_amz_tagging="k=other")[0] == 403


def test_an_old_link_signed_with_a_session_token(server: Any, bucket: str, ask: Ask) -> None:
    request = AWSRequest(method="PUT", url=f"{server.url}/{bucket}/a")
    credentials = Credentials(server.credentials.access_key, server.credentials.secret_key, "token")
    HmacV1QueryAuth(credentials).add_auth(request)
    assert ask("PUT", request.url, b"x")[0] == 200


def test_an_old_link_carries_other_alphabets(server: Any, s3: Any, bucket: str, ask: Ask) -> None:
    request = AWSRequest("PUT", f"{server.url}/{bucket}/a", headers={"x-amz-tagging": "k=漢"})
    HmacV1QueryAuth(server.credentials).add_auth(request)
    assert ask("PUT", request.url, b"x")[0] == 200
    assert s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"][0]["Value"] == "漢"


@pytest.mark.parametrize("condition", ["If-None-Match=*", "if-match=0123"])
def test_conditions_in_a_signed_query_count(
    bucket: str, ask: Ask, s3: Any, link: Callable[..., str], condition: str
) -> None:
    name, _, value = condition.partition("=")
    s3.put_object(Bucket=bucket, Key="a", Body=b"old")
    status, _, body = ask("PUT", link("PUT", f"/{bucket}/a", {name: value}), b"new")
    assert (status, b"<Code>PreconditionFailed</Code>" in body) == (412, True)
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"old"


def test_a_checksum_in_a_signed_query_is_not_of_the_body(
    bucket: str, ask: Ask, s3: Any, link: Callable[..., str]
) -> None:
    """The SDK for JavaScript puts that of an empty body there."""
    parameters = {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32"}
    assert ask("PUT", link("PUT", f"/{bucket}/a", parameters), b"x")[0] == 200
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"x"


@pytest.mark.parametrize(
    "parameters",
    [{"x-amz-meta-a": "b\r\nx-injected: 1"}, {"x-amz-meta-a\r\nx-injected": "1"}],
    ids=["value", "name"],
)
def test_what_could_not_be_a_header_is_refused_in_a_query(
    bucket: str, ask: Ask, link: Callable[..., str], parameters: dict[str, str]
) -> None:
    status, _, body = ask("PUT", link("PUT", f"/{bucket}/a", parameters), b"x")
    assert status == 400
    assert b"<Code>InvalidArgument</Code>" in body


def test_a_header_comes_once_in_a_query(bucket: str, ask: Ask, link: Callable[..., str]) -> None:
    for names in (("x-amz-acl", "X-Amz-Acl"), ("X-Amz-Acl", "x-amz-acl")):
        given = dict(zip(names, ("private", "public-read"), strict=True))
        status, _, body = ask("PUT", link("PUT", f"/{bucket}/a", given), b"x")
        assert (status, b"<Code>InvalidArgument</Code>" in body) == (400, True)


@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_a_slash_may_be_encoded(server: Any, s3: Any, bucket: str, ask: Ask, slash: str) -> None:
    """It is the same text to a signature, so it leads to the same object."""
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"hello")
    signed = AWSRequest(method="GET", url=f"{server.url}/{bucket}/a/b")
    S3SigV4Auth(server.credentials, "s3", "us-east-1").add_auth(signed)
    for path in (f"/{bucket}{slash}a/b", f"/{bucket}/a{slash}b", f"/{bucket}{slash}a{slash}b"):
        assert ask("GET", f"{path}?", **dict(signed.headers))[2] == b"hello"


def test_a_parameter_comes_once(server: Any, bucket: str, ask: Ask) -> None:
    """Its signature says nothing of their order."""
    signed = AWSRequest(method="GET", url=f"{server.url}/{bucket}?prefix=a&prefix=b")
    S3SigV4Auth(server.credentials, "s3", "us-east-1").add_auth(signed)
    for query in ("prefix=a&prefix=b", "prefix=b&prefix=a"):
        status, _, body = ask("GET", f"/{bucket}?{query}", **dict(signed.headers))
        assert (status, b"<Code>InvalidArgument</Code>" in body) == (400, True)


def test_a_parameter_s_name_may_be_encoded(
    bucket: str, ask: Ask, s3: Any, link: Callable[..., str]
) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=b"hello")
    signed = link("GET", f"/{bucket}/a", {})
    for name in ("Credential", "Signature", "SignedHeaders", "Algorithm"):
        encoded = signed.replace(f"X-Amz-{name}", f"X-Amz-%{ord(name[0]):02X}{name[1:]}")
        assert ask("GET", encoded)[2] == b"hello"
    spoilt = signed.replace("X-Amz-Credential", "X-Amz-%43redential")[:-1]
    assert ask("GET", spoilt)[0] == 403


@pytest.mark.parametrize("service", ["sns", "sagemaker", "sts", "kinesis"])
def test_a_link_for_another_service_whose_names_are_encoded(
    server: Any, bucket: str, ask: Ask, service: str
) -> None:
    """It was taken for S3's by one reader, and was an internal error to the next."""
    auth = S3SigV4QueryAuth(server.credentials, service, "us-east-1")
    request = AWSRequest(method="GET", url=f"{server.url}/{bucket}/a")
    auth.add_auth(request)
    for link in (request.url, request.url[:-1]):
        status, _, _ = ask("GET", link.replace("X-Amz-Credential", "X-Amz-%43redential"))
        assert 400 <= status < 500


@pytest.mark.parametrize("auth_class", [HmacV1QueryAuth, S3SigV4QueryAuth])
def test_a_link_ends(server: Any, bucket: str, ask: Ask, auth_class: Any) -> None:
    """By botocore's own signers: those of awscrt refuse to sign links that have ended."""

    def status(seconds: int) -> int:
        request = AWSRequest(method="GET", url=f"{server.url}/{bucket}/a")
        request.auth_path = f"/{bucket}/a"
        scope = () if auth_class is HmacV1QueryAuth else ("s3", "us-east-1")
        auth_class(server.credentials, *scope, expires=seconds).add_auth(request)
        answer: int = ask("GET", request.url)[0]
        return answer

    assert status(60) == 404
    assert status(-5) in (400, 403)


def test_an_ended_link_says_since_when(server: Any, bucket: str, ask: Ask) -> None:
    request = AWSRequest(method="GET", url=f"{server.url}/{bucket}/a")
    HmacV1QueryAuth(server.credentials, expires=-5).add_auth(request)
    _, _, body = ask("GET", request.url)
    root = ElementTree.fromstring(body)
    ended, now = (
        datetime.fromisoformat(root.findtext(name) or "") for name in ("Expires", "ServerTime")
    )
    assert 0 < (now - ended).total_seconds() < 600


def test_a_wrong_signature_is_told_what_was_to_be_signed(old: Any, bucket: str, ask: Ask) -> None:
    link = old.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a"})
    _, _, body = ask("PUT", link)
    root = ElementTree.fromstring(body)
    message = "does not match the signature you provided. Check your key and signing method."
    assert message in (root.findtext("Message") or "")
    signed = root.findtext("StringToSign") or ""
    assert bytes.fromhex(root.findtext("StringToSignBytes") or "").decode() == signed
    assert root.find("CanonicalRequest") is None


def test_a_link_can_name_a_content_type(signer: Any, bucket: str, ask: Ask, s3: Any) -> None:
    target = {"Bucket": bucket, "Key": "a", "ContentType": "application/json"}
    link = signer.generate_presigned_url("put_object", Params=target)
    assert ask("PUT", link, b"{}", Content_Type="application/json")[0] == 200
    assert s3.head_object(Bucket=bucket, Key="a")["ContentType"] == "application/json"


def test_without_any_signature_nothing_is_given(bucket: str, ask: Ask) -> None:
    status, _, body = ask("GET", f"/{bucket}/a")
    assert status == 403
    assert b"<Code>AccessDenied</Code>" in body
