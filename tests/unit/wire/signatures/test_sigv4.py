"""Signatures, with botocore's signers as the judge of what is right."""

import hashlib
from dataclasses import replace
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.signatures.sigv4 import Verifier

KEY, SECRET = "AKSHEXAMPLE/WITH/SLASHES", "secret+/="
REGION = "us-east-1"
NOW = 1_793_525_400.0

some = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SEGMENTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4)
PLAIN_PATHS = SEGMENTS.map(lambda parts: "/" + "/".join(quote(part, safe="-_.~") for part in parts))
QUERIES = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    ),
    max_size=4,
).map(lambda pairs: "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in pairs))
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "X-Amz-Target", "X-Amz-Meta-A", "X-Custom", "Accept"]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12),
)
BODIES = st.binary(max_size=64)


def sign(signer_class, request, service="sagemaker", region=REGION, secret=SECRET, **more):
    """What `add_auth` of a signer of botocore's does, as of `NOW`."""
    token = more.pop("token", None)
    signer = signer_class(Credentials(KEY, secret, token), service, region, **more)
    request.context["timestamp"] = "20261101T093000Z"
    signer._modify_request_before_signing(request)
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(to_sign, request))
    return request


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def request_of(method="POST", path="/", query="", headers=None, body=b""):
    url = f"http://127.0.0.1:9000{path}" + (f"?{query}" if query else "")
    return AWSRequest(method, url, data=body, headers=headers or {})


@pytest.fixture
def verifier(clock):
    return Verifier({KEY: SECRET}, clock, REGION)


@pytest.fixture
def signed(as_received):
    """`signed(service, **changes)`: a good request, its headers replaced by `changes`."""

    def make(service="sagemaker", secret=SECRET, region=REGION, body=b"{}", **changes) -> Request:
        signer = S3SigV4Auth if service == "s3" else SigV4Auth
        headers = {"X-Amz-Target": "SageMaker.ListModels"}
        request = sign(signer, request_of(headers=headers, body=body), service, region, secret)
        received = as_received(request, body)
        received.headers.update({name.replace("_", "-"): value for name, value in changes.items()})
        return received

    return make


def refusal(verifier, request, body=b"{}", now=None, **more) -> AwsError:
    with pytest.raises(AwsError) as caught:
        verifier.verify(request, digest(body), now, **more)
    return caught.value


@some
@given(path=PLAIN_PATHS, query=QUERIES, headers=HEADERS, body=BODIES)
def test_what_botocore_signs_is_right(verifier, as_received, path, query, headers, body):
    request = sign(SigV4Auth, request_of("POST", path, query, headers, body))
    identity = verifier.verify(as_received(request, body), digest(body))
    assert (identity.access_key, identity.service, identity.region) == (KEY, "sagemaker", REGION)
    assert identity.payload_mode == digest(body)


@some
@given(path=PLAIN_PATHS, query=QUERIES, headers=HEADERS, body=BODIES)
def test_what_botocore_signs_for_s3_is_right(verifier, as_received, path, query, headers, body):
    request = sign(S3SigV4Auth, request_of("PUT", path, query, headers, body), "s3")
    identity = verifier.verify(as_received(request, body), None)
    assert identity.payload_mode == digest(body)


@some
@given(path=PLAIN_PATHS, query=QUERIES)
def test_what_botocore_presigns_is_right(verifier, as_received, path, query):
    request = sign(SigV4QueryAuth, request_of("GET", path, query), expires=60)
    assert verifier.verify(as_received(request), digest(b"")).service == "sagemaker"


@some
@given(path=PLAIN_PATHS, query=QUERIES)
def test_what_botocore_presigns_for_s3_is_right(verifier, as_received, path, query):
    request = sign(S3SigV4QueryAuth, request_of("GET", path, query), "s3", expires=60)
    identity = verifier.verify(as_received(request), None)
    assert identity.payload_mode == "UNSIGNED-PAYLOAD"


@some
@given(
    body=BODIES,
    spoil=st.sampled_from(["method", "path", "query", "header", "body", "signature", "date"]),
)
def test_whatever_is_changed_afterwards_is_noticed(verifier, as_received, body, spoil):
    headers = {"X-Amz-Target": "SageMaker.ListModels"}
    request = as_received(sign(SigV4Auth, request_of("POST", "/a", "b=c", headers, body)), body)
    changed = {
        "method": lambda r: Request("PUT", r.raw_path, r.raw_query, r.headers),
        "path": lambda r: Request(r.method, "/a/b", r.raw_query, r.headers),
        "query": lambda r: Request(r.method, r.raw_path, "b=d", r.headers),
        "header": lambda r: _with(r, "x-amz-target", "SageMaker.DeleteModel"),
        "body": lambda r: r,
        "signature": lambda r: _with(
            r, "authorization", r.headers["authorization"][:-64] + "0" * 64
        ),
        "date": lambda r: _with(r, "x-amz-date", "20261101T093001Z"),
    }[spoil](request)
    verifier.verify(request, digest(body))  # So that what is remembered is tried as well.
    with pytest.raises(AwsError) as caught:
        verifier.verify(changed, digest(body + b"!" if spoil == "body" else body))
    assert caught.value.code == "InvalidSignatureException"
    assert caught.value.status == 403


def _with(request, name, value):
    return Request(
        request.method, request.raw_path, request.raw_query, {**request.headers, name: value}
    )


def test_the_same_request_is_right_again(verifier, signed):
    request = signed()
    first = verifier.verify(request, digest(b"{}"))
    assert verifier.verify(request, digest(b"{}")) == first


def test_names_of_headers_may_have_percent_signs(verifier, as_received):
    headers = {"X-100%": "a", "X-%s": "%d", "X-%%": "%"}
    request = as_received(sign(SigV4Auth, request_of(headers=headers)), b"")
    assert {name.lower() for name in headers} < request.headers.keys()
    assert verifier.verify(request, digest(b"")).access_key == KEY
    with pytest.raises(AwsError, match="signature"):
        verifier.verify(replace(request, headers={**request.headers, "x-%s": "d"}), digest(b""))


@pytest.mark.parametrize("letter", ["é", "0", "\u20ac"])
def test_a_signature_of_other_letters_is_wrong(verifier, signed, letter):
    request = signed()
    head, _, _ = request.headers["authorization"].partition("Signature=")
    request.headers["authorization"] = f"{head}Signature={letter * 64}"
    assert refusal(verifier, request).code == "InvalidSignatureException"


def test_headers_that_repeat_and_their_spaces(verifier, as_received):
    request = request_of()
    for value in ("  one   two ", "three"):
        request.headers.add_header("X-Custom", value)
    assert verifier.verify(as_received(sign(SigV4Auth, request)), digest(b""))


def test_a_date_header_instead_of_amazons(verifier, as_received):
    request = sign(SigV4Auth, request_of(headers={"Date": "x"}))
    assert "X-Amz-Date" not in request.headers
    assert verifier.verify(as_received(request), digest(b"")).timestamp == "20261101T093000Z"


def test_paths_that_s3_clients_leave_bare(verifier, as_received):
    sent_bare = as_received(sign(S3SigV4Auth, request_of("GET", "/bucket/a!(b)'c"), "s3"))
    assert verifier.verify(sent_bare, None)
    signed_encoded = as_received(sign(S3SigV4Auth, request_of("GET", "/bucket/a%21b"), "s3"))
    bare = Request("GET", "/bucket/a!b", "", signed_encoded.headers)
    assert verifier.verify(bare, None)


def test_dot_segments_are_keys_to_s3_only(verifier, as_received):
    for signer, service in ((S3SigV4Auth, "s3"), (SigV4Auth, "sagemaker")):
        request = sign(signer, request_of("GET", "/a/../b//c/./d/"), service)
        assert verifier.verify(as_received(request), digest(b""))


def test_a_session_token_is_not_asked_for(verifier, as_received):
    request = sign(SigV4Auth, request_of(), token="some-token")
    assert verifier.verify(as_received(request), digest(b""))


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("sagemaker", "InvalidSignatureException"),
        ("sts", "SignatureDoesNotMatch"),
        ("s3", "SignatureDoesNotMatch"),
    ],
)
def test_wrong_secret(verifier, signed, service, code):
    error = refusal(verifier, signed(service, secret="other"))
    assert (error.code, error.status) == (code, 403)
    assert "sagehen env" in error.message


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("sagemaker", "UnrecognizedClientException"),
        ("iam", "InvalidClientTokenId"),
        ("s3", "InvalidAccessKeyId"),
    ],
)
def test_unknown_key(clock, signed, service, code):
    error = refusal(Verifier({}, clock, REGION), signed(service))
    assert (error.code, error.status) == (code, 403)


@pytest.mark.parametrize(
    ("content_type", "path", "code"),
    [
        ("application/x-amz-json-1.1", "/", "MissingAuthenticationTokenException"),
        ("text/csv", "/endpoints/e/invocations", "MissingAuthenticationTokenException"),
        ("application/x-www-form-urlencoded", "/", "MissingAuthenticationToken"),
        ("", "/bucket/key", "AccessDenied"),
    ],
)
def test_no_signature_at_all(verifier, content_type, path, code):
    request = Request("POST", path, "", {"content-type": content_type, "host": "h"})
    error = refusal(verifier, request)
    assert (error.code, error.status) == (code, 403)


@pytest.mark.parametrize("away", [-15 * 60 - 1, 15 * 60 + 1])
@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("sagemaker", "InvalidSignatureException"),
        ("sts", "SignatureDoesNotMatch"),
        ("s3", "RequestTimeTooSkewed"),
    ],
)
def test_a_clock_that_is_off(verifier, signed, away, service, code):
    request = signed(service)
    error = refusal(verifier, request, now=NOW + away)
    assert (error.code, error.status) == (code, 403)
    if service == "sagemaker":
        words = "Signature expired" if away > 0 else "Signature not yet current"
        assert error.message.startswith(words)
    assert verifier.verify(request, digest(b"{}"), NOW + away - (1 if away > 0 else -1))


@pytest.mark.parametrize(
    ("service", "code"),
    [("sagemaker", "InvalidSignatureException"), ("s3", "AuthorizationHeaderMalformed")],
)
def test_another_region_is_told_the_right_one(verifier, signed, service, code):
    error = refusal(verifier, signed(service, region="eu-west-1"))
    assert error.code == code
    assert "us-east-1" in error.message
    assert "eu-west-1" in error.message


def test_services_without_regions_are_signed_for_virginia(clock, signed):
    elsewhere = Verifier({KEY: SECRET}, clock, "eu-west-1")
    assert elsewhere.verify(signed("iam"), digest(b"{}")).region == "us-east-1"
    assert refusal(elsewhere, signed("sagemaker")).code == "InvalidSignatureException"


def test_another_service_than_the_one_asked(verifier, signed):
    assert verifier.verify(signed("sagemaker"), digest(b"{}"), service="sagemaker")
    error = refusal(verifier, signed("iam"), service="sagemaker")
    assert "Credential should be scoped to correct service: 'sagemaker'" in error.message


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("", "algorithm"),
        ("Bearer sagemaker-api-key-xyz", "AWS4-HMAC-SHA256"),
        ("AWS AKID:c2ln", "AWS4-HMAC-SHA256"),
        ("AWS4-HMAC-SHA256", "requires 'Credential' parameter"),
        ("AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request", "requires 'Signature' parameter"),
        ("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=0", "slash-delimited"),
    ],
)
def test_headers_that_cannot_be_read(verifier, header, part):
    headers = {"authorization": header, "x-amz-target": "SageMaker.ListModels", "host": "h"}
    error = refusal(verifier, Request("POST", "/", "", headers))
    assert (error.code, error.status) == ("IncompleteSignatureException", 400)
    assert part in error.message


@pytest.mark.parametrize("date", ["", "yesterday", "20261101", "20261399T250000Z"])
def test_dates_that_cannot_be_read(verifier, signed, date):
    error = refusal(verifier, signed(x_amz_date=date))
    assert error.code == "IncompleteSignatureException"


@pytest.mark.parametrize("zone", ["-2359", "+" + "9" * 30], ids=["beyond all years", "no zone"])
def test_http_dates_that_cannot_be_read(verifier, signed, zone):
    request = signed()
    del request.headers["x-amz-date"]
    request.headers["date"] = f"Fri, 31 Dec 9999 23:59:59 {zone}"
    assert refusal(verifier, request).code == "IncompleteSignatureException"


def test_no_date_at_all(verifier, signed):
    request = signed()
    del request.headers["x-amz-date"]
    assert "existence of 'X-Amz-Date'" in refusal(verifier, request).message


def test_a_date_of_another_day_than_the_scopes(verifier, signed):
    error = refusal(verifier, signed(x_amz_date="20261102T000000Z"))
    assert "Date in Credential scope does not match" in error.message


def test_headers_that_say_what_is_asked_must_be_signed(verifier, signed):
    error = refusal(verifier, signed(x_amz_other="added"))
    assert "'x-amz-other' must be a 'SignedHeader'" in error.message
    error = refusal(verifier, signed("s3", x_amz_acl="public-read"))
    assert error.code == "AccessDenied"
    assert error.members == {"HeadersNotSigned": "x-amz-acl"}


def test_host_must_be_signed(verifier, signed):
    request = signed()
    authorization = request.headers["authorization"].replace("host;", "")
    error = refusal(verifier, _with(request, "authorization", authorization))
    assert "'host' must be a 'SignedHeader'" in error.message


def test_s3_wants_the_digest_in_a_header(verifier, signed):
    request = signed("s3")
    assert refusal(verifier, request, b"another body").code == "XAmzContentSHA256Mismatch"
    wrong = _with(request, "x-amz-content-sha256", "ABC")
    assert refusal(verifier, wrong).code == "InvalidArgument"
    del request.headers["x-amz-content-sha256"]
    assert refusal(verifier, request).code == "InvalidRequest"


def test_only_s3_bodies_may_be_unsigned(verifier, as_received):
    headers = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    request = as_received(sign(SigV4Auth, request_of(headers=headers)))
    assert refusal(verifier, request).code == "InvalidSignatureException"


def test_a_body_may_be_unsigned_where_that_is_allowed_and_said(verifier, as_received):
    said = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    request = as_received(sign(SigV4Auth, request_of(headers=said)))
    identity = verifier.verify(request, digest(b"any"), unsigned_body=True)
    assert identity.payload_mode == "UNSIGNED-PAYLOAD"
    link = sign(SigV4QueryAuth, request_of(headers=said), expires=60)
    assert verifier.verify(as_received(link), digest(b"any"), unsigned_body=True)
    plain = as_received(sign(SigV4Auth, request_of(body=b"{}")), b"{}")
    assert verifier.verify(plain, digest(b"{}"), unsigned_body=True)
    assert refusal(verifier, plain, b"any", unsigned_body=True).code == "InvalidSignatureException"


def test_a_body_is_not_unsigned_because_somebody_says_so_afterwards(verifier, as_received, signed):
    added = signed(x_amz_content_sha256="UNSIGNED-PAYLOAD")
    error = refusal(verifier, added, b"any", unsigned_body=True)
    assert "'x-amz-content-sha256' must be a 'SignedHeader'" in error.message
    link = as_received(sign(SigV4QueryAuth, request_of(), expires=60))
    query = link.raw_query + "&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"
    changed = Request("POST", "/", query, link.headers)
    error = refusal(verifier, changed, b"any", unsigned_body=True)
    assert error.code == "InvalidSignatureException"


def test_a_link_may_say_that_its_body_is_unsigned(verifier, as_received):
    said = request_of("POST", "/e", "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD")
    link = as_received(sign(S3SigV4QueryAuth, said, "sagemaker", expires=60))
    assert verifier.verify(link, digest(b"any"), unsigned_body=True)
    assert refusal(verifier, link, b"any").code == "InvalidSignatureException"
    unsaid = sign(S3SigV4QueryAuth, request_of("POST", "/e"), "sagemaker", expires=60)
    error = refusal(verifier, as_received(unsaid), b"any", unsigned_body=True)
    assert error.code == "InvalidSignatureException"


def presigned(as_received, **more):
    return as_received(sign(S3SigV4QueryAuth, request_of("GET", "/b/k"), "s3", **more))


def test_a_link_is_good_for_its_time(verifier, as_received):
    link = presigned(as_received, expires=60)
    assert verifier.verify(link, None, NOW + 60)
    error = refusal(verifier, link, now=NOW + 61)
    assert (error.code, error.message, error.status) == ("AccessDenied", "Request has expired", 403)
    assert refusal(verifier, link, now=NOW - 901).code == "RequestTimeTooSkewed"


@pytest.mark.parametrize(
    ("expires", "part"),
    [(604_801, "less than a week"), (-1, "must be non-negative"), ("soon", "should be a number")],
)
def test_a_link_is_good_for_a_week_at_most(verifier, as_received, expires, part):
    error = refusal(verifier, presigned(as_received, expires=expires))
    assert (error.code, error.status) == ("AuthorizationQueryParametersError", 400)
    assert part in error.message
    assert verifier.verify(presigned(as_received, expires=604_800), None, NOW + 604_800)


def test_a_link_that_lacks_a_parameter(verifier, as_received):
    link = presigned(as_received, expires=60)
    query = link.raw_query.replace("X-Amz-Date", "X-Amz-Dat")
    error = refusal(verifier, Request("GET", "/b/k", query, link.headers))
    assert error.code == "AuthorizationQueryParametersError"
    assert "X-Amz-Date" in error.message


def test_a_link_that_is_changed(verifier, as_received):
    link = presigned(as_received, expires=60)
    query = link.raw_query.replace("X-Amz-Expires=60", "X-Amz-Expires=600")
    error = refusal(verifier, Request("GET", "/b/k", query, link.headers))
    assert error.code == "SignatureDoesNotMatch"


def test_one_signature_is_enough(verifier, as_received, signed):
    link = presigned(as_received, expires=60)
    both = _with(link, "authorization", signed("s3").headers["authorization"])
    assert refusal(verifier, both).code == "InvalidArgument"


@some
@given(header=st.text(max_size=80), query=st.text(max_size=80))
def test_nothing_but_an_aws_error_comes_of_junk(verifier, header, query):
    for prefix in ("", "AWS4-HMAC-SHA256 Credential=", f"AWS4-HMAC-SHA256 Credential={KEY}/2/"):
        request = Request("GET", "/x", "", {"authorization": prefix + header, "x-amz-date": header})
        assert refusal(verifier, request).status in (400, 403)
    for prefix in ("X-Amz-Signature=", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=1&"):
        assert refusal(verifier, Request("GET", "/x", prefix + query, {})).status in (400, 403)


def test_what_is_signed_for_one_path_is_good_for_no_other(verifier, as_received):
    """The signed text of `/a!b` is that of `/a%21b` as it stands."""
    for path, other in (("/b/a!b", "/b/a%21b"), ("/b/a%2Fb", "/b/a%252Fb"), ("/b/a b", "/b/a%20b")):
        made = request_of("GET", path.replace(" ", "%20"))
        signed = as_received(sign(SigV4Auth, made))
        assert verifier.verify(signed, digest(b""))
        moved = Request("GET", other.replace("%20", "%2520"), "", signed.headers)
        assert refusal(verifier, moved, b"").code == "InvalidSignatureException"


@pytest.mark.parametrize("signer", [SigV4Auth, S3SigV4Auth])
def test_a_plus_is_a_blank(verifier, as_received, signer):
    service = "s3" if signer is S3SigV4Auth else "sagemaker"
    signed = as_received(sign(signer, request_of("GET", "/b", "x=a%2Bb"), service))
    assert verifier.verify(signed, digest(b""))
    changed = Request("GET", "/b", "x=a+b", signed.headers)
    assert refusal(verifier, changed, b"").status == 403


def test_only_blanks_and_tabs_are_gathered(verifier, as_received):
    request = request_of(headers={"X-Custom": "a  b\tc"})
    assert verifier.verify(as_received(sign(SigV4Auth, request)), digest(b""))
    plain = as_received(sign(SigV4Auth, request_of(headers={"X-Custom": "a b"})))
    assert verifier.verify(_with(plain, "x-custom", " a \t b"), digest(b""))
    for value in ("a\xa0b", "a b\xa0", "a\x85b", "a\x1fb"):
        error = refusal(verifier, _with(plain, "x-custom", value), b"")
        assert error.code == "InvalidSignatureException"
    authorization = plain.headers["authorization"]
    for changed in (
        authorization.replace("SignedHeaders=", "\xa0SignedHeaders="),
        authorization.replace(", Signature", "\xa0, Signature"),
    ):
        error = refusal(verifier, _with(plain, "authorization", changed), b"")
        assert error.status in (400, 403)


def test_letters_whose_bytes_look_like_blanks_are_kept(verifier, as_received):
    """In UTF-8 the second byte of à is that of a no-break space."""
    value = "à la carte".encode().decode("latin-1")
    signed = as_received(sign(SigV4Auth, request_of(headers={"X-Custom": "à la carte"})))
    sent = _with(signed, "x-custom", f"{value}")
    assert verifier.verify(sent, digest(b""))
    assert verifier.verify(_with(sent, "x-custom", value.replace(" ", "  ")), digest(b""))


@pytest.mark.parametrize(
    "more",
    [
        "Signature=0",
        "Credential=K/20261101/us-east-1/sns/aws4_request",
        "SignedHeaders=host",
        "Comment=x",
        "AWS4-HMAC-SHA256 Credential=K/20261101/us-east-1/sns/aws4_request",
        "",
    ],
)
def test_a_header_says_each_thing_once(verifier, signed, more):
    request = signed()
    authorization = request.headers["authorization"]
    for changed in (f"{authorization}, {more}", f"{authorization},{more}"):
        error = refusal(verifier, _with(request, "authorization", changed))
        assert (error.code, error.status) == ("IncompleteSignatureException", 400)
    assert verifier.verify(request, digest(b"{}"))


@pytest.mark.parametrize("name", ["Signature", "Credential", "Date", "SignedHeaders", "Expires"])
def test_a_link_says_each_thing_once(verifier, as_received, name):
    link = presigned(as_received, expires=60)
    for query in (f"{link.raw_query}&X-Amz-{name}=1", f"X-Am%7A-{name}=1&{link.raw_query}"):
        error = refusal(verifier, Request("GET", "/b/k", query, link.headers))
        assert (error.code, error.status) == ("AuthorizationQueryParametersError", 400)


def test_a_link_s_body_is_of_a_known_form(verifier, as_received):
    for wrong in ("ABC", "", "STREAMING-", "0" * 63):
        made = request_of("GET", "/b/k", f"X-Amz-Content-Sha256={wrong}&x=1")
        link = as_received(sign(S3SigV4QueryAuth, made, "s3", expires=60))
        assert refusal(verifier, link, b"").code == "InvalidArgument"


def test_the_parameters_names_of_a_link_may_be_encoded(verifier, as_received):
    link = presigned(as_received, expires=60)
    encoded = link.raw_query.replace("X-Amz-", "X-Am%7A-")
    assert verifier.verify(Request("GET", "/b/k", encoded, link.headers), None)
    spoilt = Request("GET", "/b/k", encoded[:-1] + "g", link.headers)
    assert refusal(verifier, spoilt).code == "SignatureDoesNotMatch"


def test_two_signatures_are_one_too_many(verifier, as_received, signed):
    old = "AWSAccessKeyId=K&Signature=0&Expires=1"
    link = presigned(as_received, expires=60)
    both = Request("GET", "/b/k", f"{link.raw_query}&{old}", link.headers)
    assert refusal(verifier, both).code == "InvalidArgument"
    request = signed("s3")
    both = Request("GET", "/", "%41WSAccessKeyId=K&Signature=0", request.headers)
    assert refusal(verifier, both).code == "InvalidArgument"


@pytest.mark.parametrize("query", ["x=X-Amz-Signature=", "x=AWSAccessKeyId=%26Signature="])
def test_what_looks_like_a_signature_in_a_value_is_none(verifier, as_received, query):
    request = as_received(sign(S3SigV4Auth, request_of("GET", "/b/k", query), "s3"))
    assert verifier.verify(request, None)
    unsigned = Request("GET", "/b/k", query, {"host": "h"})
    assert "not signed" in refusal(verifier, unsigned).message


@some
@given(path=PLAIN_PATHS, query=QUERIES, headers=HEADERS)
def test_a_head_that_botocore_signed_may_go_on(verifier, as_received, path, query, headers):
    for service in ("sagemaker", "execute-api"):
        request = sign(SigV4Auth, request_of("POST", path, query, headers), service)
        verifier.check_head(as_received(request))
        verifier.check_head(as_received(request), service)
        link = sign(SigV4QueryAuth, request_of("GET", path, query), service, expires=60)
        verifier.check_head(as_received(link), service)


def head_refusal(verifier, request, *service):
    with pytest.raises(AwsError) as caught:
        verifier.check_head(request, *service)
    return caught.value.code


def test_a_head_is_refused_for_what_no_body_can_mend(verifier, clock, signed, as_received):
    other = Verifier({"AKSHOTHER": SECRET}, clock, REGION)
    assert head_refusal(other, signed()) == "UnrecognizedClientException"
    for wrong in (
        signed(region="eu-north-1"),
        signed(x_amz_date="20261101T000000Z"),
        signed(x_amz_more="unsigned"),
    ):
        assert head_refusal(verifier, wrong) == "InvalidSignatureException"
    assert head_refusal(verifier, signed(x_amz_date="now")) == "IncompleteSignatureException"
    assert head_refusal(verifier, signed(authorization="x")) == "IncompleteSignatureException"
    assert head_refusal(verifier, signed(), "execute-api") == "InvalidSignatureException"
    unsigned = as_received(request_of())
    assert head_refusal(verifier, unsigned) == "AccessDenied"
    assert head_refusal(verifier, unsigned, "sagemaker") == "MissingAuthenticationTokenException"


def test_a_link_is_refused_by_its_head_once_it_is_over(verifier, as_received):
    verifier.check_head(as_received(sign(SigV4QueryAuth, request_of("GET"), expires=60)))
    over = as_received(sign(SigV4QueryAuth, request_of("GET"), expires=-1))
    assert head_refusal(verifier, over) == "IncompleteSignatureException"


def test_the_signature_itself_is_left_for_later(verifier, signed):
    verifier.check_head(signed(secret="another"))
    assert refusal(verifier, signed(secret="another")).code == "InvalidSignatureException"
