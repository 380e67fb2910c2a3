"""The published contract, byte for byte; and what is answered to everything else."""

import json
import re

import pytest

from sagehen.wire.errors import AwsError

ACCEPTED = re.compile(
    rb'\{"status": 200, "errMsg": "A new job \[model-a-job-2027-01-15-08-00-0\d-[a-z0-9]{6}\] '
    rb'was scheduled successfully, and (\d) slots reminded\."\}'
)
MALFORMED = (
    b'{"status": 501, "errMsg": "missing \\"type\\" in your request, please check and try again."}'
)


def test_the_four_answers(make_house):
    house = make_house(limit=2)
    first = house.post({"type": "model_a"})
    second = house.post({"type": "model_a"})
    assert [first.status, second.status] == [200, 200]
    assert [ACCEPTED.fullmatch(one.data)[1] for one in (first, second)] == [b"1", b"0"]
    full = house.post({"type": "model_a"})
    assert (full.status, full.data) == (
        502,
        b'{"status": 502, "errMsg": "Failed to schedule inference at the moment, due to reaching '
        b'limit 2."}',
    )
    unknown = house.post({"type": "xxx"})
    assert (unknown.status, unknown.data) == (
        510,
        b'{"status": 510, "errMsg": "The type [xxx]  of inference request is NOT supported.."}',
    )
    malformed = house.post(b"{}")
    assert (malformed.status, malformed.data) == (501, MALFORMED)
    assert {one.headers["content-type"] for one in (first, full)} == {"application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'"model_a"',
        b"null",
        b'{"type": ""}',
        b'{"type": 1}',
        b'{"type": null}',
        b'{"type": ["model_a"]}',
        b'{"Type": "model_a"}',
        b'{"type": "model_a"',
        b'{"type": "model_a"}}',
        b'\xef\xbb\xbf{"type": "model_a"}',
        b'{"type": "model_a\xff"}',
        b'{"type": "model_a", "type": "model_a"}',
        b'{"type": "model_a", "input": {"a": 1, "a": 2}}',
        b'{"type": "model_a", "input": NaN}',
        b'{"type": "model_a", "input": [Infinity]}',
        b'{"type": "model_a", "input": 1e999}',
        b'{"type": "model_a", "input": ' + b"1" * 5000 + b"}",
        b'{"type": "model_a", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        '{"type": "model_a"}'.encode("utf-16"),
    ],
    ids=lambda body: body[:32],
)
def test_what_cannot_be_read_is_501(house, body):
    answered = house.post(body)
    assert (answered.status, answered.data) == (501, MALFORMED)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "what/ever; x=y", ""])
def test_the_content_type_does_not_matter_nor_do_other_keys(house, content_type):
    answered = house.post({"type": "model_a", "more": {"a": [1]}}, content_type=content_type)
    assert answered.status == 200


@pytest.mark.parametrize("kind", ["model_a ", "MODEL_A", "model", "mödel", "\ud800", "x" * 9999])
def test_types_match_exactly(house, kind):
    answered = house.post({"type": kind})
    assert answered.status == 510
    told = f"The type [{kind}]  of inference request is NOT supported.."
    assert answered.data == json.dumps({"status": 510, "errMsg": told}).encode()


def test_the_status_line_may_always_be_200(make_house):
    house = make_house(always_200=True)
    assert house.post({"type": "model_a"}).status == 200
    answers = [house.post({"type": kind}) for kind in ("model_a", "x", "")]
    assert [one.status for one in answers] == [200] * 3
    assert [one.body["status"] for one in answers] == [502, 510, 501]


def test_texts_are_settings_and_what_is_filled_in_stays_as_it_is(make_house):
    house = make_house(text_unsupported="{type}? no: {type}", text_limit="{limit} of {type}")
    assert (
        house.post({"type": "{limit}{type}"}).body["errMsg"] == "{limit}{type}? no: {limit}{type}"
    )
    house.start()
    assert house.post({"type": "model_a"}).body["errMsg"] == "1 of model_a"


def test_a_body_has_a_bound(make_house):
    house = make_house(max_body_bytes=2000)
    assert house.post({"type": "model_a", "input": "x" * 2000}).status == 501
    assert house.post({"type": "model_a", "input": "x" * 1900}).status == 200


def test_the_limit_is_seen_before_anything_is_made(house):
    house.start()
    house.breaks = AwsError("ResourceInUse", "No.", 400)
    assert house.post({"type": "model_a"}).status == 502


def test_a_job_that_cannot_be_made_is_500_and_holds_no_slot(house):
    house.breaks = AwsError("ResourceInUse", "A name is taken.", 400)
    answered = house.post({"type": "model_a"})
    assert answered.data == b'{"status": 500, "errMsg": "A name is taken."}'
    house.breaks = None
    assert house.post({"type": "model_a"}).status == 200


def test_a_bucket_that_is_gone_is_told_and_holds_no_slot(house):
    house.objects.delete_bucket("bucket")
    answered = house.post({"type": "model_a"})
    assert (answered.status, answered.body["status"]) == (500, 500)
    assert "there is no bucket bucket" in answered.body["errMsg"]
    house.objects.create_bucket("bucket")
    assert house.post({"type": "model_a"}).status == 200


def test_an_image_that_nothing_is_known_of_is_500_and_says_what_to_do(make_house):
    house = make_house(white_list="strange")
    answered = house.post({"type": "strange"})
    assert answered.status == 500
    assert '[images] "strange" = ["python3", "train.py"]' in answered.body["errMsg"]
