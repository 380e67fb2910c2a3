"""How records are read, joined and written: what CSV and JSON have in common."""

from collections.abc import Callable
from typing import Any, Protocol

from sagehen.services.sagemaker.transform.data_processing.json_path import Path
from sagehen.services.sagemaker.transform.records.batches import Batch

__all__ = ["InferenceColumns", "RecordFormat"]

InferenceColumns = tuple[str, str]
"""SageMakerInferenceId and SageMakerInferenceTime of a record"""


class RecordFormat(Protocol):
    """A record is whatever the format reads: bytes of a row, or a JSON value."""

    def selector(self, path: Path) -> Callable[[list[Any]], list[Any]]:
        """Returns a function that takes from each record what the path selects.

        Raises PathSyntaxError; the function raises PartMissing and BareQuote.
        """
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
