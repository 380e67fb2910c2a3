"""How records are read, joined and written: what CSV and JSON have in common."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from sagehen.services.sagemaker.transform.data_processing.json_path import Path
from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.records.record_ends import RecordEnds

__all__ = ["InferenceColumns", "RecordFormat", "divide_lines"]

InferenceColumns = tuple[str, str]
"""SageMakerInferenceId and SageMakerInferenceTime of a record"""


_PART = 2048
"""records; documents take ten times the memory of their text, and new memory takes time"""


class RecordFormat(Protocol):
    """A record is whatever the format reads: bytes of a row, or a JSON value."""

    def selector(self, path: Path) -> Callable[[list[Any]], list[Any]]:
        """Returns a function that takes from each record what the path selects.

        Raises PathSyntaxError; the function raises PartMissing and BareQuote.
        """
        ...

    def divide(self, batch: Batch, answer: bytes) -> list[tuple[Batch, bytes]]:
        """Returns parts that take less memory to process, or the batch as a whole."""
        ...

    def read_input(self, batch: Batch) -> list[Any]:
        """Returns as many records as the batch has. Raises InputRecordError."""
        ...

    def check_input(self, batch: Batch) -> None:
        """Checks what `read_input` leaves to selectors. Raises InputRecordError."""
        ...

    def read_answer(self, answer: bytes, records: int) -> list[Any]:
        """`records` says how many there should be. Raises AnswerError."""
        ...

    def join(self, inputs: list[Any], outputs: list[Any]) -> list[Any]: ...

    def add_columns(self, outputs: list[Any], columns: list[InferenceColumns]) -> list[Any]: ...

    def write_request(self, records: list[Any]) -> bytes: ...

    def write_output(self, records: list[Any]) -> bytes: ...


def divide_lines(batch: Batch, answer: bytes) -> list[tuple[Batch, bytes]]:
    """Divides a batch whose records are lines, and an answer with as many lines, or none."""
    payloads = _parts(batch.payload, batch.records)
    answers = _parts(answer, batch.records) if answer else [b""] * len(payloads)
    if len(payloads) == 1 or len(payloads) != len(answers):
        return [(batch, answer)]
    parts = []
    for number, (payload, part) in enumerate(zip(payloads, answers, strict=True)):
        before = number * _PART
        records = min(_PART, batch.records - before)
        parts.append((Batch(payload, records, batch.first_record + before), part))
    return parts


def _parts(text: bytes, records: int) -> list[bytes]:
    """Returns the text in parts of so many lines, if it has a line for each record."""
    if records <= _PART:
        return [text]
    newlines = RecordEnds().find(text).all
    if len(newlines) + (not text.endswith(b"\n")) != records:
        return [text]
    cuts = (newlines[_PART - 1 :: _PART] + 1).tolist()
    bounds = [0, *(cut for cut in cuts if cut < len(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(bounds)]
