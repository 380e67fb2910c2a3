"""Batches of SNS and SQS: what is wrong with a whole batch, and with one entry."""

from typing import Any

import pytest

from sagehen.services.messaging.batches import (
    MAX_ENTRIES,
    BatchWording,
    batch_answer,
    check_batch,
    try_each,
)
from sagehen.wire.errors import AwsError

WORDING = BatchWording(
    empty="empty",
    too_many=str,
    bad_id=lambda one: f"bad {one}",
    repeated_id=lambda one: f"two {one}",
)


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        ([], "EmptyBatchRequest", "empty"),
        ([str(n) for n in range(11)], "TooManyEntriesInBatchRequest", "11"),
        (["a", "a b"], "InvalidBatchEntryId", "bad a b"),
        (["a", "x" * 81], "InvalidBatchEntryId", "bad xxx"),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct", "two a"),
    ],
)
def test_batches_that_are_refused(ids: list[str], code: str, message: str) -> None:
    with pytest.raises(AwsError, match=message) as caught:
        check_batch([{"Id": entry_id} for entry_id in ids], WORDING)
    assert caught.value.code == code


def test_the_largest_batch() -> None:
    check_batch([{"Id": f"{number:080}"} for number in range(MAX_ENTRIES)], WORDING)


def test_an_entry_that_fails_holds_up_no_other() -> None:
    def double(entry: dict[str, Any]) -> int:
        if entry["n"] == 1:
            raise AwsError("Odd", "one is odd")
        return int(entry["n"]) * 2

    results, failed = try_each([{"Id": str(n), "n": n} for n in range(3)], double)
    assert results == {"0": 0, "2": 4}
    assert batch_answer([], failed) == {
        "Failed": [{"Id": "1", "Code": "Odd", "Message": "one is odd", "SenderFault": True}],
    }
