"""Batch requests of SNS and SQS: checks of their entries, and results by entry."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sagehen.wire.errors import AwsError

__all__ = [
    "MAX_ENTRIES",
    "MAX_ID_LENGTH",
    "BatchWording",
    "batch_answer",
    "check_batch",
    "try_each",
]

MAX_ENTRIES = 10
MAX_ID_LENGTH = 80
_ENTRY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")

T = TypeVar("T")


class BatchWording(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one service's errors."""

    empty: str
    too_many: Callable[[int], str]
    """from the number of entries"""
    bad_id: Callable[[str], str]
    repeated_id: Callable[[str], str]


def check_batch(entries: list[dict[str, Any]], wording: BatchWording) -> None:
    """Raises AwsError."""
    if not entries:
        raise AwsError("EmptyBatchRequest", wording.empty, 400)
    if len(entries) > MAX_ENTRIES:
        raise AwsError("TooManyEntriesInBatchRequest", wording.too_many(len(entries)), 400)
    ids = [entry["Id"] for entry in entries]
    for entry_id in ids:
        if not _ENTRY_ID.fullmatch(entry_id):
            raise AwsError("InvalidBatchEntryId", wording.bad_id(entry_id), 400)
    for entry_id in ids:
        if ids.count(entry_id) > 1:
            raise AwsError("BatchEntryIdsNotDistinct", wording.repeated_id(entry_id), 400)


def try_each(
    entries: list[dict[str, Any]], operation: Callable[[dict[str, Any]], T]
) -> tuple[dict[str, T], list[dict[str, Any]]]:
    """Returns results by Id, and entries that raised AwsError."""
    results: dict[str, T] = {}
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            results[entry["Id"]] = operation(entry)
        except AwsError as error:
            failed.append(
                {
                    "Id": entry["Id"],
                    "Code": error.code,
                    "Message": error.message,
                    "SenderFault": True,
                }
            )
    return results, failed


def batch_answer(successful: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """Leaves out empty lists, as SQS does although its model requires them."""
    answer = {"Successful": successful, "Failed": failed}
    return {name: entries for name, entries in answer.items() if entries}
