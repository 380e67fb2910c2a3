"""Checks of DataProcessing for CreateTransformJob."""

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.data_processing.csv_rows import column_selector
from sagehen.services.sagemaker.transform.data_processing.json_path import (
    PathSyntaxError,
    parse_path,
)
from sagehen.services.sagemaker.transform.data_processing.media_types import (
    CSV,
    JSON,
    PROCESSED,
    media_type,
)
from sagehen.services.sagemaker.transform.format_options import FormatOptions
from sagehen.services.sagemaker.transform.object_formats import (
    container_content_type,
    is_converted,
)
from sagehen.services.sagemaker.transform.records.cutting import check_quoted_newlines

__all__ = ["check_data_processing", "check_filter"]

_JSON_OPERATORS = "$[]*. ,:-'"
_CSV_OPERATORS = "$[] ,:-"


def check_filter(
    kind: str, expression: str, content_type: str | None, *, extended: bool = False
) -> None:
    """Refuses a filter for records of a ContentType, or of an Accept.

    `kind` is InputFilter or OutputFilter. `extended` lets names have underscores. Lists with ranges
    pass: SageMaker refuses those only when the job runs. Raises Invalid, with SageMaker's text.
    """
    form = media_type(content_type)
    if expression in ("", "$"):
        return
    if form not in PROCESSED:
        raise Invalid(
            f'{kind} needs {_field_of(kind)} to be one of {", ".join(PROCESSED)}; it is "{form}".'
        )
    try:
        _check_characters(expression, form, extended=extended)
        path = parse_path(expression, mixed=True)
        if form == CSV:
            column_selector(path)
    except PathSyntaxError as error:
        raise Invalid(f'Invalid {kind}: "{expression}". {error}') from None


def _field_of(kind: str) -> str:
    return "TransformInput.ContentType" if kind == "InputFilter" else "TransformOutput.Accept"


def _check_characters(expression: str, form: str, *, extended: bool) -> None:
    operators = _CSV_OPERATORS if form == CSV else _JSON_OPERATORS
    names = "_" if extended else ""
    for character in expression:
        is_part = character.isdigit() if form == CSV else character.isalnum()
        if not is_part and character not in operators + names:
            listed = ", ".join(f"'{operator}'" for operator in operators)
            raise PathSyntaxError(
                f'Unexpected "{character}" in JsonPath. Supported operators for "{form}" are '
                f"[{listed}]"
            )


def check_data_processing(
    *,
    content_type: str | None,
    accept: str | None,
    split_type: str = "None",
    assemble_with: str = "None",
    input_filter: str = "$",
    output_filter: str = "$",
    join_source: str = "None",
    generate_inference_id: bool = False,
    options: FormatOptions = FormatOptions(),  # noqa: B008
) -> None:
    """Refuses fields and options that do not go together. Raises Invalid."""
    extended = options.extended_filters
    _check_options(options, content_type, split_type)
    content_type = container_content_type(content_type, split_type, options)
    check_filter("InputFilter", input_filter, content_type, extended=extended)
    check_filter("OutputFilter", output_filter, accept, extended=extended)
    if join_source == "Input":
        _check_join(content_type, accept, split_type, assemble_with)
    if join_source == "Input" or input_filter not in ("", "$"):
        _check_split(media_type(content_type), split_type)
    if generate_inference_id and media_type(accept) not in PROCESSED:
        raise Invalid(
            "DataCaptureConfig.GenerateInferenceId needs TransformOutput.Accept to be one of "
            f'{", ".join(PROCESSED)}; it is "{accept or ""}".'
        )


def _check_options(options: FormatOptions, content_type: str | None, split_type: str) -> None:
    if options.csv_quoted_newlines:
        check_quoted_newlines(split_type, content_type)
    if options.parquet_as is not None and not is_converted(content_type, split_type):
        raise Invalid(
            "SAGEHEN_TRANSFORM_PARQUET_AS is for objects of ContentType application/x-parquet and "
            f'SplitType Line; this job has ContentType "{content_type or ""}" and SplitType '
            f"{split_type}. Remove the variable, or change these."
        )


def _check_join(
    content_type: str | None, accept: str | None, split_type: str, assemble_with: str
) -> None:
    form = media_type(content_type)
    if form not in PROCESSED:
        raise Invalid(
            "JoinSource Input needs TransformInput.ContentType to be one of "
            f'{", ".join(PROCESSED)}; it is "{content_type or ""}".'
        )
    if form != media_type(accept):
        raise Invalid(
            "JoinSource Input needs TransformOutput.Accept to be the same as "
            f'TransformInput.ContentType; they are "{accept or ""}" and "{content_type}".'
        )
    if split_type != assemble_with:
        raise Invalid(
            "JoinSource Input needs TransformOutput.AssembleWith to be the same as "
            f'TransformInput.SplitType; they are "{assemble_with}" and "{split_type}".'
        )


def _check_split(form: str, split_type: str) -> None:
    allowed = ("None", "Line") if form == JSON else ("Line",)
    if split_type not in allowed:
        raise Invalid(
            f"DataProcessing of {form} needs TransformInput.SplitType to be "
            f'{" or ".join(allowed)}; it is "{split_type}".'
        )
