"""What SQS's batches have in common: up to ten entries, each with an Id and an outcome."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sagehen.wire.faults import AwsError

__all__ = ["batch_answer", "check_batch", "try_each"]

T = TypeVar("T")

MOST_ENTRIES = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_batch(operation: str, entries: list[dict[str, Any]]) -> None:
    """Raises AwsError where there are none or too many entries, or their Ids are wrong.

    Args:
        operation: what is done to each: `SendMessage`, for example.
    """
    if not entries:
        raise AwsError(
            "EmptyBatchRequest",
            f"There should be at least one {operation}BatchRequestEntry in the request.",
            400,
        )
    if len(entries) > MOST_ENTRIES:
        raise AwsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST_ENTRIES}. You have sent "
            f"{len(entries)}.",
            400,
        )
    ids = [entry["Id"] for entry in entries]
    if not all(_ENTRY_ID.fullmatch(one) for one in ids):
        raise AwsError(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
            400,
        )
    for one in ids:
        if ids.count(one) > 1:
            raise AwsError("BatchEntryIdsNotDistinct", f"Id {one} repeated.", 400)


def try_each(
    entries: list[dict[str, Any]], work: Callable[[dict[str, Any]], T]
) -> tuple[dict[str, T], list[dict[str, Any]]]:
    """What `work` makes of each entry by its Id, and those that it refused by an AwsError."""
    done: dict[str, T] = {}
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            done[entry["Id"]] = work(entry)
        except AwsError as error:
            failed.append(_failed(entry["Id"], error))
    return done, failed


def batch_answer(successful: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """Both lists are there in any case: clients ask for either."""
    return {"Successful": successful, "Failed": failed}


def _failed(entry_id: str, error: AwsError) -> dict[str, Any]:
    return {"Id": entry_id, "Code": error.code, "Message": error.message, "SenderFault": True}
