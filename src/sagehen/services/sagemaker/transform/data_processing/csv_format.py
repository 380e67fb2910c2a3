"""CSV: a row is a record, and values stay as they are written."""

from collections.abc import Callable

from sagehen.services.sagemaker.transform.data_processing.csv_rows import (
    BareQuote,
    column_selector,
    split_fields,
    split_rows,
)
from sagehen.services.sagemaker.transform.data_processing.errors import (
    AnswerError,
    InputRecordError,
)
from sagehen.services.sagemaker.transform.data_processing.json_path import Path
from sagehen.services.sagemaker.transform.data_processing.record_formats import (
    InferenceColumns,
    divide_lines,
)
from sagehen.services.sagemaker.transform.records.batches import Batch

__all__ = ["CsvFormat"]


class CsvFormat:
    def __init__(self, *, quoted_newlines: bool) -> None:
        self._quoted_newlines = quoted_newlines

    def selector(self, path: Path) -> Callable[[list[bytes]], list[bytes]]:
        return column_selector(path)

    def divide(self, batch: Batch, answer: bytes) -> list[tuple[Batch, bytes]]:
        if self._quoted_newlines and (b'"' in batch.payload or b'"' in answer):
            return [(batch, answer)]
        return divide_lines(batch, answer)

    def read_input(self, batch: Batch) -> list[bytes]:
        return split_rows(batch.payload, quoted_newlines=self._quoted_newlines)

    def check_input(self, batch: Batch) -> None:
        if b'"' not in batch.payload:
            return
        rows = self.read_input(batch)
        if broken := _bare_quote(rows):
            number, error = broken
            near = rows[number][:80].decode(errors="replace")
            hint = "" if self._quoted_newlines else _HINT
            raise InputRecordError(batch.first_record + number, f"{error} found near: {near}{hint}")

    def read_answer(self, answer: bytes, records: int) -> list[bytes]:
        rows = split_rows(answer, quoted_newlines=self._quoted_newlines)
        if b'"' in answer and (broken := _bare_quote(rows)):
            number, error = broken
            raise AnswerError.not_parsed("CSV", str(error), rows[number])
        if len(rows) > records:
            # An empty row may be an answer. It is none where all others answer the records.
            filled = [row for row in rows if row]
            return filled if len(filled) == records else rows
        return rows

    def join(self, inputs: list[bytes], outputs: list[bytes]) -> list[bytes]:
        return list(map(b",".join, zip(inputs, outputs, strict=True)))

    def add_columns(self, outputs: list[bytes], columns: list[InferenceColumns]) -> list[bytes]:
        ends = (f"{identifier},{time}".encode() for identifier, time in columns)
        return list(map(b",".join, zip(outputs, ends, strict=True)))

    def write_request(self, records: list[bytes]) -> bytes:
        if b"" in records:
            # Readers of CSV pass over empty lines, and the last one would be none at all.
            records = [record or b'""' for record in records]
        return b"\n".join(records)

    def write_output(self, records: list[bytes]) -> bytes:
        return b"\n".join([*records, b""])


_HINT = (
    ". If fields hold newlines between quotes, set SAGEHEN_TRANSFORM_CSV_QUOTED_NEWLINES to true "
    "in the job's Environment"
)


def _bare_quote(rows: list[bytes]) -> tuple[int, BareQuote] | None:
    """Returns the first row with one."""
    for number, row in enumerate(rows):
        try:
            split_fields(row)
        except BareQuote as error:
            return number, error
    return None
