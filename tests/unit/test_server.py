"""What a start finds out before the roles have it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from sagehen.domain.events import ENABLED, RuleRecord
from sagehen.domain.topics import TopicRecord
from sagehen.server import choose_partition
from sagehen.store import event_rules, tags, topics
from sagehen.store.database import Database
from support.state import settings_of

CHINA = "cn-north-1:000000000000"


def topic(connection: Connection, partition: str) -> None:
    arn = f"arn:{partition}:sns:{CHINA}:t"
    topics.insert(connection, TopicRecord(arn=arn, created_at=1.0, attributes={}))


def rule(connection: Connection, partition: str) -> None:
    arn = f"arn:{partition}:events:{CHINA}:rule/r"
    event_rules.put(
        connection,
        RuleRecord(name="r", arn=arn, state=ENABLED, event_pattern="{}", created_at=1.0),
    )


def tag(connection: Connection, partition: str) -> None:
    tags.put(connection, f"arn:{partition}:sqs:{CHINA}:q", {"k": "v"})


@pytest.mark.parametrize("make", [topic, rule, tag])
@pytest.mark.parametrize("partition", ["aws", "aws-cn"])
def test_a_home_keeps_the_partition_of_its_arns(
    database: Database,
    tmp_path: Path,
    make: Callable[[Connection, str], None],
    partition: str,
) -> None:
    def chosen(**settings: Any) -> str:
        return choose_partition(settings_of(tmp_path, **settings))

    assert chosen(region="cn-north-1") == "aws-cn"
    with database.write() as connection:
        make(connection, partition)
    assert chosen(region="cn-north-1") == partition
    assert chosen(region="cn-northwest-1") == "aws-cn", "of another region"
    assert chosen(region="us-gov-west-1") == "aws-us-gov"
    assert chosen(region="us-east-1") == "aws"
    assert chosen(region="cn-north-1", partition="aws-iso") == "aws-iso"
