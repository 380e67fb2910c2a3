"""A message's text for each protocol, and stored messages of any version."""

import msgspec
import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.sns.records import Notice, TopicRecord


def notice(message: str, structure: str | None = "json") -> Notice:
    return Notice(
        message_id="m", topic_arn="t", message=message, published_at=1, structure=structure
    )


def test_a_text_for_each_protocol() -> None:
    texts = notice('{"default": "all", "sqs": "queues", "http": ""}')
    assert [texts.text_for(protocol) for protocol in ("sqs", "http", "email")] == [
        "queues",
        "all",
        "all",
    ]
    assert notice("{}", structure=None).text_for("sqs") == "{}"


@pytest.mark.parametrize(
    ("message", "why"),
    [("{}", "No default entry"), ("[1]", "No default entry"), ("{", "failed to parse")],
)
def test_texts_that_cannot_be_read(message: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        notice(message).text_for("sqs")


def test_members_that_a_version_does_not_know_are_passed_over() -> None:
    stored = b'{"message_id":"m","topic_arn":"t","message":"x","published_at":1,"later":5}'
    read = msgspec.json.decode(stored, type=Notice)
    assert (read.message, read.attributes, read.dimensions) == ("x", {}, {})


def test_a_topic_signs_as_its_owner_says() -> None:
    topic = TopicRecord(arn="arn:aws:sns:r:0:name", created_at=0, attributes={})
    assert (topic.name, topic.signature_version) == ("name", "1")
    newer = msgspec.structs.replace(topic, attributes={"SignatureVersion": "2"})
    assert newer.signature_version == "2"
