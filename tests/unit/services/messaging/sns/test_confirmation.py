"""What is carried out for somebody who has not signed: two operations of SNS, by a link."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.services.messaging.sns.confirmation import LINKED
from sagehen.wire.http import Request
from sagehen.wire.services import service
from sagehen.wire.signatures.sigv4 import Verifier
from support.recording import Recording, recording

OPERATIONS = sorted(service("sns").operation_names)
LINKS = sorted(name for _, name in LINKED)
GIVEN = {
    "TopicArn": "arn:aws:sns:us-east-1:000000000000:t",
    "SubscriptionArn": "arn:aws:sns:us-east-1:000000000000:t:s",
    "Token": "t0k",
    "Message": "m",
    "Name": "n",
    "Protocol": "webhook",
    "Endpoint": "http://127.0.0.1:1/",
}
FORM = "application/x-www-form-urlencoded; charset=utf-8"


@pytest.fixture(scope="module")
def made() -> Iterator[Recording]:
    with recording(Verifier({"AK": "secret"}, SYSTEM, "us-east-1"), SYSTEM) as made:
        yield made


@pytest.fixture
def app(made: Recording) -> Recording:
    made.executed.clear()
    return made


def get(query: str, path: str = "/", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", path, query, {"host": "h", **named})


@pytest.mark.parametrize("link", LINKS)
async def test_a_link_is_followed(app: Recording, link: str) -> None:
    members = service("sns").operation_model(link).input_shape.members
    given = {name: value for name, value in GIVEN.items() if name in members}
    await app.ask(get(urlencode({"Action": link, **given})))
    (done,) = app.executed
    assert (done.service, done.operation, done.by_link) == ("sns", link, True)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("link", LINKS)
async def test_no_other_operation_hides_behind_a_link(
    app: Recording, operation: str, link: str
) -> None:
    given = urlencode(GIVEN)
    second = [f"{name}={operation}" for name in ("Action", "action", "%41ction", "%20Action")]
    bodies = [urlencode({"Action": name, **GIVEN}).encode() for name in (operation, link)]
    requests = [
        *[get(f"Action={link}&{one}&{given}") for one in second],
        *[get(f"{one}&Action={link}&{given}") for one in second],
        get(f"Action={link}&{given}", x_amz_target=f"AmazonSimpleNotificationService.{operation}"),
        *[
            Request(method, "/", f"Action={name}&{given}", {"content-length": "1", **kind}, body)
            for method in ("GET", "POST")
            for name in (operation, link)
            for body in bodies
            for kind in ({}, {"content-type": FORM})
        ],
    ]
    for request in requests:
        answer = await app.ask(request)
        assert answer.status in (400, 403), (request, answer)
    assert app.executed == []


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one not in LINKS])
async def test_only_what_is_listed_needs_no_signature(app: Recording, operation: str) -> None:
    answer = await app.ask(get(urlencode({"Action": operation, **GIVEN})))
    assert (answer.status, app.executed) == (403, [])
    assert b"<Code>MissingAuthenticationToken</Code>" in answer.body


@pytest.mark.parametrize("link", LINKS)
async def test_what_is_signed_is_no_link(app: Recording, link: str) -> None:
    query = urlencode({"Action": link, **GIVEN})
    for request in (
        get(query, authorization="AWS4-HMAC-SHA256 x"),
        get(query + "&X-Amz-Signature=0"),
        get(query + "&AWSAccessKeyId=AK&Signature=0&Expires=1"),
        get(query, path="//"),
    ):
        assert (await app.ask(request)).status in (400, 403)
    assert app.executed == []


@pytest.mark.parametrize("path", ["/b", "/b/", "/b%2Fk"])
@pytest.mark.parametrize(
    "query", ["", "uploads", "X-Amz-Signature=0", "AWSAccessKeyId=AK&Signature=0"]
)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"policy": ""},
        {"policy": "e30="},
        {"policy": "e30=", "AWSAccessKeyId": "AK", "signature": "AAAA"},
        {"policy": "e30=", "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-signature": "0" * 64},
    ],
)
async def test_a_browser_s_form_keeps_nothing_unless_its_policy_is_signed(
    app: Recording, path: str, query: str, fields: dict[str, str]
) -> None:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"key": "k", **fields}.items()
    ]
    file = (
        '--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nbytes\r\n--x--\r\n'
    )
    headers = {"host": "h", "content-type": "multipart/form-data; boundary=x"}
    body = "".join([*parts, file]).encode()
    answer = await app.ask(Request("POST", path, query, headers, body))
    assert answer.status in (400, 403, 405, 501), answer
    assert app.executed == []
