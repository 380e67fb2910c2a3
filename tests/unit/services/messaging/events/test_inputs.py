"""What targets are given of an event: parts of it, constants, and templates."""

import json
from typing import Any

import msgspec
import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.events.inputs import (
    NOTHING,
    check_input,
    find,
    input_for,
    text_to_read,
)
from sagehen.services.messaging.events.records import Event, RuleRecord

RULE = RuleRecord(name="r", arn="arn:r", state="ENABLED", event_pattern="{}", created_at=0)
EVENT = Event(
    event_id="id-1",
    source="aws.sagemaker",
    detail_type="type",
    account="000000000000",
    region="us-east-1",
    happened_at=1.9,
    put_at=61,
    resources=("arn:a", "arn:b"),
    detail={"name": 'a "job"', "size": 5, "tags": [{"k": 1}, {"k": 2}, {}], "a-b": {"c.d": None}},
)


def transformed(template: str, **paths: str) -> str:
    transformer = {"InputPathsMap": paths, "InputTemplate": template}
    check_input({"InputTransformer": transformer})
    return input_for(EVENT, RULE, {"InputTransformer": transformer})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.id", "id-1"),
        ("$.detail-type", "type"),
        ("$.resources[1]", "arn:b"),
        ("$.resources[2]", NOTHING),
        ("$.detail.tags[*].k", [1, 2]),
        ("$.detail.tags[0].k", 1),
        ("$.detail['a-b']['c.d']", None),
        ('$["detail"].size', 5),
        ("$.detail.size.more", NOTHING),
        ("$.detail.size[*]", NOTHING),
        ("$.nothing", NOTHING),
    ],
)
def test_paths(path: str, found: Any) -> None:
    assert find(path, EVENT.envelope()) == found


@pytest.mark.parametrize("path", ["detail", "$detail", "$.", "$..a", "$.a[", "$.a[-1]", "$.a b"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(Invalid):
        check_input({"InputPath": path})


def test_all_of_it_or_a_part_or_a_constant() -> None:
    whole = json.loads(input_for(EVENT, RULE, {}))
    assert (whole["id"], whole["time"], whole["version"]) == ("id-1", "1970-01-01T00:00:01Z", "0")
    assert input_for(EVENT, RULE, {"InputPath": "$.detail.size"}) == "5"
    assert input_for(EVENT, RULE, {"InputPath": "$.nothing"}) == "null"
    assert input_for(EVENT, RULE, {"Input": '{"a": 1}'}) == '{"a": 1}'


def test_templates_of_json_stay_json() -> None:
    filled = transformed(
        '{"name": <n>, "text": "<n> has \\"<s>\\"", "tags": <t>, "no": <x>, "none": "<x>"}',
        n="$.detail.name", s="$.detail.size", t="$.detail.tags", x="$.nothing",
    )  # fmt: skip
    assert json.loads(filled) == {
        "name": 'a "job"',
        "text": 'a "job" has "5"',
        "tags": [{"k": 1}, {"k": 2}, {}],
        "no": None,
        "none": "",
    }
    assert json.loads(transformed('"Job <n>"', n="$.detail.name")) == 'Job a "job"'


def test_templates_of_text() -> None:
    assert transformed("Job <n>: <t>", n="$.id", t="$.detail.tags[0]") == 'Job id-1: {"k":1}'
    assert transformed('"a <n>"\n"b"', n="$.id") == '"a id-1"\n"b"'
    odd = msgspec.structs.replace(EVENT, detail={"x": "a\x00b"})
    transformer = {"InputPathsMap": {"x": "$.detail.x"}, "InputTemplate": "is <x>"}
    assert input_for(odd, RULE, {"InputTransformer": transformer}) == "is a\ufffdb"


def test_variables_that_are_always_there() -> None:
    own = transformed(
        '{"a": "<aws.events.rule-name>", "b": <aws.events.rule-arn>, '
        '"c": <aws.events.event.ingestion-time>, "d": <aws.events.event.json>, '
        '"e": <aws.events.event>}'
    )
    filled = json.loads(own)
    assert (filled["a"], filled["b"], filled["c"]) == ("r", "arn:r", "1970-01-01T00:01:01Z")
    assert filled["d"] == EVENT.envelope()
    assert filled["e"] == {key: one for key, one in EVENT.envelope().items() if key != "detail"}


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"Input": "no json"}, "not valid JSON"),
        ({"Input": "1", "InputPath": "$"}, "Only one of"),
        ({"InputTransformer": {"InputTemplate": "<a>"}}, "placeholder <a>"),
        ({"InputTransformer": {"InputPathsMap": {"awsx": "$"}, "InputTemplate": "x"}}, "AWS"),
        ({"InputTransformer": {"InputPathsMap": {"a": "x"}, "InputTemplate": "x"}}, "begins with"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(target: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check_input(target)


def test_a_mail_reads_well() -> None:
    assert text_to_read('{"a":{"b":1}}') == '{\n  "a": {\n    "b": 1\n  }\n}'
    assert text_to_read('"The job\\nis done"') == "The job\nis done"
    assert text_to_read("not json") == "not json"
