"""JSON and JSON Lines: a document is a record."""

from collections.abc import Callable
from typing import Any

import msgspec

from sagehen.services.sagemaker.transform.data_processing.errors import (
    AnswerError,
    InputRecordError,
)
from sagehen.services.sagemaker.transform.data_processing.json_path import Path, part_selector
from sagehen.services.sagemaker.transform.data_processing.record_formats import (
    InferenceColumns,
    divide_lines,
)
from sagehen.services.sagemaker.transform.records.batches import Batch

__all__ = ["JsonFormat"]

_DECODER = msgspec.json.Decoder()
_REQUESTS = msgspec.json.Encoder()
"""keeps the order of keys, which a model may take for the order of its features"""
_OUTPUTS = msgspec.json.Encoder(order="sorted")
_NOT_JSON = (ValueError, RecursionError)


class JsonFormat:
    def __init__(self, name: str, *, lines: bool) -> None:
        self._name = name
        self._lines = lines
        """each document of the output ends with a newline; else there is one, without"""

    def selector(self, path: Path) -> Callable[[list[Any]], list[Any]]:
        return part_selector(path)

    def divide(self, batch: Batch, answer: bytes) -> list[tuple[Batch, bytes]]:
        return divide_lines(batch, answer)

    def read_input(self, batch: Batch) -> list[Any]:
        try:
            documents = _documents(batch.payload, batch.records)
        except _NOT_JSON:
            documents = []
        if len(documents) != batch.records:
            raise _input_error(batch)
        return documents

    def check_input(self, batch: Batch) -> None:
        """JSON that could be read is whole."""

    def read_answer(self, answer: bytes, records: int) -> list[Any]:
        try:
            return _documents(answer, records)
        except _NOT_JSON as error:
            raise AnswerError.not_parsed(self._name, str(error), answer) from None

    def join(self, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        joined = []
        for document, output in zip(inputs, outputs, strict=True):
            if type(document) is dict:
                document["SageMakerOutput"] = output
                joined.append(document)
            else:
                joined.append({"SageMakerInput": document, "SageMakerOutput": output})
        return joined

    def add_columns(self, outputs: list[Any], columns: list[InferenceColumns]) -> list[Any]:
        documents = []
        for output, (identifier, time) in zip(outputs, columns, strict=True):
            document = output if type(output) is dict else {"SageMakerOutput": output}
            document["SageMakerInferenceId"] = identifier
            document["SageMakerInferenceTime"] = time
            documents.append(document)
        return documents

    def write_request(self, records: list[Any]) -> bytes:
        return _REQUESTS.encode_lines(records)[:-1]

    def write_output(self, records: list[Any]) -> bytes:
        text = _OUTPUTS.encode_lines(records)
        return text if self._lines else text[:-1]


def _documents(text: bytes, records: int) -> list[Any]:
    """One document may have several lines. Raises what `_NOT_JSON` lists."""
    if records == 1:
        try:
            return [_DECODER.decode(text)]
        except _NOT_JSON:
            return _DECODER.decode_lines(text)
    try:
        return _DECODER.decode_lines(text)
    except _NOT_JSON:
        return [_DECODER.decode(text)]


def _input_error(batch: Batch) -> InputRecordError:
    lines = batch.payload.split(b"\n") if batch.records > 1 else [batch.payload]
    record = batch.first_record
    for line in lines:
        if line.strip(b"\r"):
            try:
                _DECODER.decode(line)
            except _NOT_JSON as error:
                near = line[:80].decode(errors="replace")
                return InputRecordError(record, f"{error} in: {near}")
            record += 1
    return InputRecordError(batch.first_record, "the batch is not one JSON document a line")
