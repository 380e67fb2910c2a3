"""Rows of asynchronous requests, and the counts of their endpoints."""

import pytest

from sagehen.services.sagemaker.async_inference import request_store
from sagehen.services.sagemaker.async_inference.records import OutputTarget
from sagehen.services.sagemaker.async_inference.rows import count, row_of
from sagehen.state.database import Database
from support.fixtures.async_queue import request


def test_a_request_without_topics_has_no_notices() -> None:
    row = row_of(request(1))
    assert (row["notices"], row["state"], row["end_at"]) == (None, "QUEUED", 2001.0)


def test_topics_are_json() -> None:
    output = OutputTarget(
        location="s3://o/x", success_topic="arn:s", include_response_in=("SUCCESS",)
    )
    assert row_of(request(output=output))["notices"] == '{"success":"arn:s","include":["SUCCESS"]}'


@pytest.mark.parametrize(
    ("names", "backlogs"),
    [((), [(0, 0), (0, 0)]), (("A",), [(1, -1), (0, 0)]), (("B", "A", "B"), [(1, -1), (2, -2)])],
)
def test_each_name_counts_as_often_as_it_comes(
    any_database: Database, names: tuple[str, ...], backlogs: list[tuple[int, int]]
) -> None:
    with any_database.write() as connection:
        count(connection, names, queued=1, leased=-1)
    with any_database.read() as connection:
        assert [request_store.backlog(connection, name) for name in ("A", "B")] == backlogs
