"""DataProcessing of a transform job: InputFilter, the model, JoinSource, OutputFilter."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.data_processing.csv_format import CsvFormat
from sagehen.services.sagemaker.transform.data_processing.csv_rows import BareQuote
from sagehen.services.sagemaker.transform.data_processing.errors import (
    AnswerError,
    FilterError,
    InputRecordError,
)
from sagehen.services.sagemaker.transform.data_processing.inference_ids import (
    inference_ids,
    inference_time,
)
from sagehen.services.sagemaker.transform.data_processing.json_format import JsonFormat
from sagehen.services.sagemaker.transform.data_processing.json_path import (
    MixedRanges,
    PartMissing,
    Path,
    PathSyntaxError,
    parse_path,
)
from sagehen.services.sagemaker.transform.data_processing.media_types import (
    CSV,
    JSON,
    JSON_LINES,
    media_type,
)
from sagehen.services.sagemaker.transform.data_processing.record_formats import RecordFormat
from sagehen.services.sagemaker.transform.format_options import FormatOptions, read_format_options
from sagehen.services.sagemaker.transform.object_formats import object_format
from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.runner_messages import RunnerSpec

__all__ = ["Processing", "make_processing", "processing_of"]


class _Filter:
    """A filter of the job, with the number of the record that it cannot be applied to."""

    def __init__(self, kind: str, expression: str, form: RecordFormat, path: Path) -> None:
        self._description = f'the {kind} "{expression}" cannot be applied'
        self._select = form.selector(path)

    def of_all(self, records: list[Any], first_record: int) -> list[Any]:
        """Raises InputRecordError and BareQuote."""
        try:
            return self._select(records)
        except PartMissing:
            pass
        for number, record in enumerate(records, first_record):
            self._of_one(record, number)
        raise AssertionError("a filter fails for none of the records alone")

    def _of_one(self, record: Any, number: int) -> None:
        try:
            self._select([record])
        except PartMissing as error:
            raise InputRecordError(number, f"{self._description}: {error}") from None


class Processing:
    """Filters and joins the records of one object, before the model and after it."""

    def __init__(
        self,
        *,
        input_form: RecordFormat | None,
        input_filter: _Filter | None,
        output_form: RecordFormat | None,
        output_filter: _Filter | None,
        joined: bool,
        split: bool,
        inference_id: Callable[[int], str] | None,
        inference_time: str,
    ) -> None:
        self._input_form = input_form
        self._input_filter = input_filter
        self._output_form = output_form
        self._output_filter = output_filter
        self._joined = joined
        self._counted = joined or (split and inference_id is not None)
        self._inference_id = inference_id
        self._inference_time = inference_time

    def request(self, batch: Batch) -> bytes:
        """Returns what the container gets. Raises InputRecordError."""
        form, selection = self._input_form, self._input_filter
        if form is None or selection is None:
            return batch.payload
        parts = [part for part, _ in form.divide(batch, b"")]
        try:
            return b"\n".join(
                form.write_request(selection.of_all(form.read_input(part), part.first_record))
                for part in parts
            )
        except BareQuote:
            form.check_input(batch)
            raise

    def output(self, batch: Batch, answer: bytes) -> bytes:
        """Returns what the output has of the answer. Raises AnswerError and InputRecordError."""
        form = self._output_form
        if form is None:
            return answer
        parts = form.divide(batch, answer)
        try:
            return b"".join(self._output_of(form, *part) for part in parts)
        except AnswerError:
            if len(parts) == 1:
                raise
            # A document of the answer may have several lines, which were divided.
            return self._output_of(form, batch, answer)

    def _output_of(self, form: RecordFormat, batch: Batch, answer: bytes) -> bytes:
        records = form.read_answer(answer, batch.records)
        if self._counted and len(records) != batch.records:
            raise _mismatch(batch, len(records))
        if self._joined:
            if self._output_filter is None:
                form.check_input(batch)
            records = form.join(form.read_input(batch), records)
        if self._output_filter is not None:
            try:
                records = self._output_filter.of_all(records, batch.first_record)
            except BareQuote:
                form.check_input(batch)
                raise
        if self._inference_id is not None:
            numbers = range(batch.first_record, batch.first_record + len(records))
            time = self._inference_time
            columns = [(identifier, time) for identifier in map(self._inference_id, numbers)]
            records = form.add_columns(records, columns)
        return form.write_output(records)


def make_processing(
    *,
    content_type: str | None = None,
    accept: str | None = None,
    split_type: str = "None",
    input_filter: str = "$",
    output_filter: str = "$",
    join_source: str = "None",
    inference_id: Callable[[int], str] | None = None,
    inference_time: str = "",
    options: FormatOptions = FormatOptions(),  # noqa: B008
) -> Processing | None:
    """Returns None where nothing is to be done.

    `inference_id` gives the id of a record of the object, by its number. The fields are those that
    `checks.check_data_processing` has accepted. Raises FilterError for what SageMaker refuses first
    when the job runs.
    """
    input_path = _path(input_filter, options)
    output_path = _path(output_filter, options)
    joined = join_source == "Input"
    if not (input_path.steps or output_path.steps or joined or inference_id):
        return None
    input_form = output_form = None
    if input_path.steps:
        input_form = _form(content_type, split_type, options)
    if output_path.steps or joined or inference_id:
        output_form = _form(accept, split_type, options)
    return Processing(
        input_form=input_form,
        input_filter=_filter("InputFilter", input_filter, input_form, input_path),
        output_form=output_form,
        output_filter=_filter("OutputFilter", output_filter, output_form, output_path),
        joined=joined,
        split=split_type != "None",
        inference_id=inference_id,
        inference_time=inference_time,
    )


def processing_of(spec: RunnerSpec, key: str) -> Processing | None:
    """Returns the processing of one object of a job, by its key. Raises FilterError and Invalid."""
    options = read_format_options(spec.options)
    form = object_format(spec, key)
    if form.quoted_newlines:
        options = msgspec.structs.replace(options, csv_quoted_newlines=True)
    with_ids = spec.capture is not None and spec.capture.generate_inference_id
    return make_processing(
        content_type=form.content_type,
        accept=spec.accept,
        split_type=spec.split_type,
        input_filter=spec.input_filter,
        output_filter=spec.output_filter,
        join_source=spec.join_source,
        inference_id=inference_ids(spec.job_arn, key) if with_ids else None,
        inference_time=inference_time(spec.started_at),
        options=options,
    )


def _path(expression: str, options: FormatOptions) -> Path:
    try:
        return _parsed(
            expression or "$",
            inclusive=options.inclusive_slices,
            mixed=options.extended_filters,
        )
    except MixedRanges as error:
        raise FilterError(
            f"Invalid JsonPath: {expression}: only single range filters of format (eg: [1:5]) are "
            f"supported. Format {error.brackets} is not supported"
        ) from None
    except PathSyntaxError as error:
        raise FilterError(f"Invalid JsonPath: {expression}: {error}") from None


_parsed = lru_cache(maxsize=64)(parse_path)


def _filter(kind: str, expression: str, form: RecordFormat | None, path: Path) -> _Filter | None:
    if form is None or not path.steps:
        return None
    try:
        return _Filter(kind, expression, form, path)
    except PathSyntaxError as error:
        raise FilterError(f"Invalid JsonPath: {expression}: {error}") from None


def _form(content_type: str | None, split_type: str, options: FormatOptions) -> RecordFormat:
    match media_type(content_type):
        case "text/csv":
            return CsvFormat(quoted_newlines=options.csv_quoted_newlines)
        case "application/jsonlines":
            return JsonFormat("JSON Lines", lines=True)
        case "application/json":
            return JsonFormat("JSON", lines=split_type != "None")
    raise Invalid(
        f'Data processing reads {CSV}, {JSON} and {JSON_LINES}, and not "{content_type or ""}".'
    )


def _mismatch(batch: Batch, lines: int) -> AnswerError:
    first, last = batch.first_record, batch.first_record + batch.records - 1
    return AnswerError(
        "Fail to join data: mismatched line count between the input and the output: the algorithm "
        f"was sent {batch.records} records ({first} to {last}) and answered {lines}."
    )
