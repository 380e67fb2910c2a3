"""Browser-based uploads, by forms that botocore signs, in both of its ways."""

import base64
import hashlib
import hmac
import json
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import boto3
import pytest
import requests
from botocore.config import Config

from sagehen.services.s3.forms import uploads as forms

SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
Post = Callable[..., requests.Response]


@pytest.fixture(params=["s3", "s3v4"])
def signer(server: Any, request: pytest.FixtureRequest) -> Any:
    """A client that signs forms in the older way, and one in the newer."""
    return server.client(signature_version=request.param)


@pytest.fixture
def post(server: Any, bucket: str) -> Post:
    """`post(signed, **fields)` sends a form; what is None is left out."""

    def send(
        signed: dict[str, Any], file: Any = b"hello", url: str = "", **more: str | None
    ) -> requests.Response:
        fields = {**signed["fields"], **more}
        kept = {name: value for name, value in fields.items() if value is not None}
        return requests.post(
            url or signed["url"],
            data=kept,
            files={"file": file},
            allow_redirects=False,
            timeout=120,
        )

    return send


def error(answer: requests.Response) -> tuple[int, str, str]:
    root = ElementTree.fromstring(answer.text)
    return answer.status_code, root.findtext("Code") or "", root.findtext("Message") or ""


def denied(why: str) -> tuple[int, str, str]:
    return 403, "AccessDenied", f"Invalid according to Policy: {why}"


def signed_policy(server: Any, bucket: str, document: Any, **fields: str) -> dict[str, Any]:
    """A form with any policy, rightly signed in the newer way."""
    client = server.client(signature_version="s3v4")
    made = client.generate_presigned_post(bucket, "k")
    encoded = base64.b64encode(
        document if isinstance(document, bytes) else json.dumps(document).encode()
    ).decode()
    _, date, region, service, _ = made["fields"]["x-amz-credential"].rsplit("/", 4)
    key = ("AWS4" + SECRET_KEY).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    signature = hmac.digest(key, encoded.encode(), hashlib.sha256).hex()
    made["fields"].update(policy=encoded, **{"x-amz-signature": signature}, **fields)
    return dict(made)


def test_a_form_becomes_an_object(signer: Any, s3: Any, bucket: str, post: Post) -> None:
    signed = signer.generate_presigned_post(bucket, "a/k")
    answer = post(signed)
    assert (answer.status_code, answer.content) == (204, b"")
    found = s3.get_object(Bucket=bucket, Key="a/k")
    assert found["Body"].read() == b"hello"
    assert answer.headers["etag"] == found["ETag"]
    assert answer.headers["location"] == f"{signer.meta.endpoint_url}/{bucket}/a%2Fk"
    assert found["ContentType"] == "binary/octet-stream"


def test_a_large_file_streams(signer: Any, s3: Any, bucket: str, post: Post) -> None:
    data = bytes(range(256)) * 40_000
    assert post(signer.generate_presigned_post(bucket, "large"), data).status_code == 204
    assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == data


def test_what_the_fields_say_is_kept(signer: Any, s3: Any, bucket: str, post: Post) -> None:
    tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"
    fields = {
        "Content-Type": "text/csv",
        "Cache-Control": "max-age=5",
        "x-amz-meta-City": "Zürich",
        "x-amz-storage-class": "STANDARD_IA",
        "acl": "bucket-owner-full-control",
        "tagging": tags,
    }
    conditions = [{name: value} for name, value in fields.items()]
    signed = signer.generate_presigned_post(bucket, "k", Fields=fields, Conditions=conditions)
    assert post(signed, **{"x-ignore-me": "x"}).status_code == 204
    found = s3.get_object(Bucket=bucket, Key="k")
    assert (found["ContentType"], found["CacheControl"]) == ("text/csv", "max-age=5")
    assert found["StorageClass"] == "STANDARD_IA"
    assert found["Metadata"]["city"].encode("latin-1").decode() == "Zürich"
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "a", "Value": "1"}]


def test_the_key_may_have_the_name_of_the_file(
    signer: Any, s3: Any, bucket: str, post: Post
) -> None:
    signed = signer.generate_presigned_post(bucket, "in/${filename}")
    assert post(signed, ("C:\\folder\\naïve.txt", b"x")).status_code == 204
    assert s3.head_object(Bucket=bucket, Key="in/naïve.txt")["ContentLength"] == 1
    answer = post(signed, ("", b""), key="elsewhere/${filename}")
    assert answer.status_code == 403


def test_the_answer_may_be_chosen(signer: Any, bucket: str, post: Post) -> None:
    def ask(**fields: str) -> requests.Response:
        conditions = [{name: value} for name, value in fields.items()]
        signed = signer.generate_presigned_post(bucket, "a/ü", Fields=fields, Conditions=conditions)
        return post(signed)

    made = ask(success_action_status="201")
    root = ElementTree.fromstring(made.content)
    assert (made.status_code, root.tag) == (201, "PostResponse")
    told = {child.tag: child.text for child in root}
    assert (told["Bucket"], told["Key"], told["ETag"]) == (bucket, "a/ü", made.headers["etag"])
    assert told["Location"] == made.headers["location"]
    assert ask(success_action_status="200").status_code == 200
    assert ask(success_action_status="404").status_code == 204
    sent_on = ask(success_action_redirect="https://example.com/done?a=1")
    assert sent_on.status_code == 303
    target = urlsplit(sent_on.headers["location"])
    assert (target.netloc, target.path) == ("example.com", "/done")
    etag = sent_on.headers["etag"]
    assert parse_qs(target.query) == {
        "a": ["1"],
        "bucket": [bucket],
        "key": ["a/ü"],
        "etag": [etag],
    }
    assert ask(success_action_redirect="/not/whole").status_code == 204


def test_conditions_are_kept_to(signer: Any, bucket: str, post: Post) -> None:
    conditions = [
        ["starts-with", "$Content-Type", "image/"],
        ["EQ", "$x-amz-meta-a", "1"],
        ["starts-with", "$x-amz-meta-b", ""],
    ]
    fields = {"Content-Type": "image/png", "X-Amz-Meta-A": "1", "x-amz-meta-b": "any"}
    signed = signer.generate_presigned_post(bucket, "k", Fields=fields, Conditions=conditions)
    assert post(signed).status_code == 204
    assert post(signed, **{"Content-Type": "image/png,image/gif"}).status_code == 204
    failed = 'Policy Condition failed: ["starts-with", "$Content-Type", "image/"]'
    assert error(post(signed, **{"Content-Type": "text/html"})) == denied(failed)
    assert error(post(signed, **{"Content-Type": "image/png,text/html"})) == denied(failed)
    assert error(post(signed, **{"Content-Type": None})) == denied(failed)
    failed = 'Policy Condition failed: ["eq", "$x-amz-meta-a", "1"]'
    assert error(post(signed, **{"X-Amz-Meta-A": "2"})) == denied(failed)
    failed = 'Policy Condition failed: ["starts-with", "$x-amz-meta-b", ""]'
    assert error(post(signed, **{"x-amz-meta-b": None})) == denied(failed)
    failed = 'Policy Condition failed: ["eq", "$key", "k"]'
    assert error(post(signed, key="other")) == denied(failed)
    extra = post(signed, StorageClass="STANDARD")
    assert error(extra) == denied("Extra input fields: StorageClass")


def test_a_policy_is_for_one_bucket(
    signer: Any, s3: Any, server: Any, bucket: str, post: Post
) -> None:
    s3.create_bucket(Bucket="another-form-bucket")
    signed = signer.generate_presigned_post(bucket, "k")
    failed = f'Policy Condition failed: ["eq", "$bucket", "{bucket}"]'
    for more in ({}, {"bucket": bucket}):
        answer = post(signed, url=f"{server.url}/another-form-bucket", **more)
        assert error(answer) == denied(failed)
    missing = signer.generate_presigned_post("no-such-bucket", "k")
    assert error(post(missing))[:2] == (404, "NoSuchBucket")


def test_a_policy_that_names_no_bucket_is_for_none(server: Any, bucket: str, post: Post) -> None:
    soon = datetime.fromtimestamp(time.time() + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = ("key", "x-amz-algorithm", "x-amz-credential", "x-amz-date")
    conditions = [["starts-with", f"${name}", ""] for name in names]
    signed = signed_policy(server, bucket, {"expiration": soon, "conditions": conditions})
    for more in ({}, {"bucket": bucket}):
        assert error(post(signed, **more)) == denied("Extra input fields: bucket")
    conditions.append(["starts-with", "$bucket", ""])
    signed = signed_policy(server, bucket, {"expiration": soon, "conditions": conditions})
    assert post(signed).status_code == 204


def test_sizes_have_bounds(signer: Any, s3: Any, server: Any, bucket: str, post: Post) -> None:
    bounds = [["content-length-range", 5, 10]]
    signed = signer.generate_presigned_post(bucket, "sized", Conditions=bounds)
    before = server.files()
    large = ElementTree.fromstring(post(signed, b"x" * 11).text)
    assert [large.findtext(name) for name in ("Code", "ProposedSize", "MaxSizeAllowed")] == [
        "EntityTooLarge",
        "11",
        "10",
    ]
    small = ElementTree.fromstring(post(signed, b"x" * 4).text)
    assert [small.findtext(name) for name in ("Code", "ProposedSize", "MinSizeAllowed")] == [
        "EntityTooSmall",
        "4",
        "5",
    ]
    assert error(post(signed, bytes(600_000)))[1] == "EntityTooLarge"
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    assert server.files() == before
    for size in (5, 10):
        assert post(signed, b"x" * size).status_code == 204


def test_a_policy_ends(signer: Any, server: Any, bucket: str, post: Post) -> None:
    signed = signer.generate_presigned_post(bucket, "k", ExpiresIn=-1)
    assert error(post(signed)) == denied("Policy expired.")


def test_signatures_are_checked(signer: Any, server: Any, bucket: str, post: Post) -> None:
    signed = signer.generate_presigned_post(bucket, "k")
    name = "signature" if "signature" in signed["fields"] else "x-amz-signature"
    right = signed["fields"][name]
    assert error(post(signed, **{name: right[::-1]}))[:2] == (403, "SignatureDoesNotMatch")
    shorter = signed["fields"]["policy"][:-4]
    assert error(post(signed, policy=shorter))[:2] == (403, "SignatureDoesNotMatch")
    written = {"signature": "Signature", "x-amz-signature": "X-Amz-Signature"}[name]
    said = f"Bucket POST must contain a field named '{written}'.  If it is specified, please check "
    expected = (400, "InvalidArgument", f"{said}the order of the fields.")
    assert error(post(signed, **{name: None})) == expected
    assert error(post(signed, key=None))[1] == "InvalidArgument"
    nobody = server.client(signature_version=signer.meta.config.signature_version, access_key="AK")
    assert error(post(nobody.generate_presigned_post(bucket, "k")))[1] == "InvalidAccessKeyId"
    unsigned = {"url": signed["url"], "fields": {"key": "k"}}
    status, code, message = error(post(unsigned))
    assert (status, code) == (403, "AccessDenied")
    assert "not signed" in message


def test_a_form_is_signed_for_this_region(server: Any, bucket: str, post: Post) -> None:
    elsewhere = boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key=SECRET_KEY,
        config=Config(signature_version="s3v4"),
    )
    signed = elsewhere.generate_presigned_post(bucket, "k")
    message = "the region 'eu-west-1' is wrong; expecting 'us-east-1'"
    assert error(post(signed)) == (400, "InvalidArgument", message)
    signed["fields"]["x-amz-credential"] = "nonsense"
    assert error(post(signed))[1] == "InvalidArgument"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"{", "Invalid JSON."),
        ([], "Invalid JSON."),
        ({"expiration": "E"}, "Policy missing conditions."),
        ({"conditions": []}, "Policy missing expiration."),
        ({"expiration": "E", "conditions": [], "Version": "1"}, "Unexpected: 'Version'"),
        (
            {"expiration": "2026-11-01", "conditions": []},
            "Invalid 'expiration' value: '2026-11-01'",
        ),
        ({"expiration": "E", "conditions": {}}, "Invalid 'conditions' value: must be a List."),
        (
            {"expiration": "E", "conditions": [{}]},
            "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.",
        ),
        (
            {"expiration": "E", "conditions": [{"Content-Length": 5}]},
            "Invalid Simple-Condition: value must be a string.",
        ),
        (
            {"expiration": "E", "conditions": [["matches", "$key", "x"]]},
            "Invalid Condition: unknown operation 'matches'.",
        ),
        (
            {"expiration": "E", "conditions": [["content-length-range", 0]]},
            "Invalid content-length-range: wrong number of arguments.",
        ),
        (
            {"expiration": "E", "conditions": [["content-length-range", 0, 5.5]]},
            "Invalid JSON.",
        ),
    ],
)
def test_policies_have_a_form(
    server: Any, bucket: str, post: Post, document: Any, message: str
) -> None:
    soon = datetime.fromtimestamp(time.time() + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(document, dict) and document.get("expiration") == "E":
        document = {**document, "expiration": soon}
    signed = signed_policy(server, bucket, document)
    expected = (400, "InvalidPolicyDocument", f"Invalid Policy: {message}")
    assert error(post(signed)) == expected


class TestBodies:
    """What is no such form, sent as it stands."""

    @pytest.fixture
    def send(self, server: Any, bucket: str) -> Callable[..., requests.Response]:
        def post(body: bytes, boundary: str = "b") -> requests.Response:
            kind = f"multipart/form-data; boundary={boundary}".removesuffix("; boundary=")
            return requests.post(
                f"{server.url}/{bucket}", data=body, headers={"content-type": kind}, timeout=30
            )

        return post

    @staticmethod
    def field(name: str, value: str, more: str = "") -> bytes:
        head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
        return f"{head}{value}\r\n".encode()

    def test_malformed_forms(self, send: Any) -> None:
        malformed = (400, "MalformedPOSTRequest")
        assert error(send(b"no form at all"))[:2] == malformed
        assert error(send(self.field("a", "1")))[:2] == malformed, "without an end"
        assert error(send(b"", boundary=""))[:2] == malformed
        twice = self.field("a", "1") + self.field("A", "2") + b"--b--\r\n"
        assert error(send(twice))[:2] == malformed
        other = b'--b\r\nContent-Disposition: file; name="file"\r\n\r\nx\r\n--b--\r\n'
        assert error(send(other))[:2] == malformed

    def test_one_file(self, send: Any, server: Any, s3: Any, bucket: str) -> None:
        without = self.field("key", "k") + b"--b--\r\n"
        message = "POST requires exactly one file upload per request."
        assert error(send(without)) == (400, "InvalidArgument", message)
        signed = server.client().generate_presigned_post(bucket, "k")["fields"]
        fields = b"".join(self.field(name, value) for name, value in signed.items())
        two = fields + self.field("file", "1") + self.field("file", "2") + b"--b--\r\n"
        assert error(send(two)) == (400, "InvalidArgument", message)
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
        late = self.field("file", "1") + fields + b"--b--\r\n"
        assert error(send(late))[1] == "InvalidArgument", "what comes after the file is not there"
        behind = fields + self.field("file", "1") + self.field("submit", "Go") + b"--b--\r\n"
        assert send(behind).status_code == 204
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"

    def test_the_fields_are_few(self, send: Any) -> None:
        large = self.field("key", "k" * 21_000)
        assert error(send(large + b"--b--\r\n"))[:2] == (400, "MaxPostPreDataLengthExceeded")
        many = b"".join(self.field(f"f{number}", "") for number in range(2000))
        assert error(send(many + b"--b--\r\n"))[:2] == (400, "MaxPostPreDataLengthExceeded")

    def test_what_is_before_the_fields_is_little(self, send: Any) -> None:
        answer = send(b"\r\n" * 200_000 + self.field("key", "k") + b"--b--\r\n")
        assert error(answer)[:2] == (400, "MaxPostPreDataLengthExceeded")

    def test_behind_the_file_headers_have_a_bound_too(
        self, send: Any, server: Any, s3: Any, bucket: str
    ) -> None:
        signed = server.client().generate_presigned_post(bucket, "k")["fields"]
        fields = b"".join(self.field(name, value) for name, value in signed.items())
        more = "".join(f"\r\nX-{number}: {'x' * 4000}" for number in range(6))
        behind = fields + self.field("file", "1") + self.field("submit", "Go", more)
        assert error(send(behind + b"--b--\r\n"))[:2] == (400, "MaxPostPreDataLengthExceeded")
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)

    @pytest.mark.parametrize(
        ("sent", "code"), [(b"", b"RequestTimeout"), (b"no form", b"MalformedPOSTRequest")]
    )
    def test_nobody_takes_long_for_the_fields(
        self, server: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, sent: bytes, code: bytes
    ) -> None:
        monkeypatch.setattr(forms, "FIELDS_SECONDS", 0.1)
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), timeout=120) as client:
            client.sendall(
                f"POST /{bucket} HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
                + sent
            )
            answer = client.makefile("rb").read()  # until the server closes the connection
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert code in answer

    def test_a_form_that_breaks_off_leaves_nothing(
        self, send: Any, server: Any, s3: Any, bucket: str
    ) -> None:
        before = server.files()
        signed = server.client().generate_presigned_post(bucket, "k")["fields"]
        fields = b"".join(self.field(name, value) for name, value in signed.items())
        part = (
            fields + b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + bytes(99_999)
        )
        assert error(send(part))[:2] == (400, "MalformedPOSTRequest")
        assert server.files() == before
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_a_checksum_is_compared(signer: Any, bucket: str, post: Post) -> None:
    right = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="
    name = "x-amz-checksum-sha256"
    conditions = [["starts-with", f"${name}", ""]]
    signed = signer.generate_presigned_post(bucket, "k", Conditions=conditions)
    answer = post(signed, **{name: right})
    assert (answer.status_code, answer.headers[name]) == (204, right)
    assert error(post(signed, b"other", **{name: right}))[:2] == (400, "BadDigest")


def test_a_form_of_the_wrong_type(server: Any, bucket: str) -> None:
    for headers in ({}, {"Content-Type": "text/html"}):
        answer = requests.post(
            f"{server.url}/{bucket}", data={"key": "k"}, headers=headers, timeout=60
        )
        assert error(answer)[:2] == (412, "PreconditionFailed")
    condition = "Bucket POST must be of the enclosure-type multipart/form-data"
    assert ElementTree.fromstring(answer.text).findtext("Condition") == condition


def test_a_refused_form_leaves_the_connection_in_step(signer: Any, bucket: str) -> None:
    signed = signer.generate_presigned_post(bucket, f"k-{uuid.uuid4().hex}")
    with requests.Session() as session:
        for size in (10, 500_000, 900_000):
            refused = session.post(
                signed["url"],
                data={**signed["fields"], "key": "other"},
                files={"file": bytes(size)},
                timeout=120,
            )
            assert refused.status_code == 403
        done = session.post(signed["url"], data=signed["fields"], files={"file": b"x"}, timeout=120)
        assert done.status_code == 204
