"""CreateTransformJob refuses filters and fields in SageMaker's words."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.data_processing.checks import (
    check_data_processing,
    check_filter,
)
from sagehen.services.sagemaker.transform.format_options import FormatOptions

JSON_OPERATORS = "['$', '[', ']', '*', '.', ' ', ',', ':', '-', ''']"
CSV = {
    "content_type": "text/csv",
    "accept": "text/csv",
    "split_type": "Line",
    "assemble_with": "Line",
}


def test_underscores_are_refused_in_the_words_of_sagemaker():
    with pytest.raises(Invalid) as raised:
        check_filter("OutputFilter", "$['account_id','SageMakerOutput']", "application/jsonlines")
    assert str(raised.value) == (
        "Invalid OutputFilter: \"$['account_id','SageMakerOutput']\". "
        'Unexpected "_" in JsonPath. '
        f'Supported operators for "application/jsonlines" are {JSON_OPERATORS}'
    )


def test_underscores_are_allowed_by_option():
    check_filter("OutputFilter", "$['account_id']", "application/jsonlines", extended=True)


@pytest.mark.parametrize(
    "expression", ["", "$", "$[0]", "$[1:]", "$[0,-1]", "$[ 1 : 4 ]", "$[0:2,5:]"]
)
def test_filters_of_csv_have_indexes(expression):
    check_filter("InputFilter", expression, "text/csv; charset=utf-8")


@pytest.mark.parametrize(
    ("expression", "character"), [("$.a", "."), ("$['a']", "'"), ("$[*]", "*"), ("$[a]", "a")]
)
def test_filters_of_csv_have_no_names(expression, character):
    with pytest.raises(Invalid, match="Invalid InputFilter") as raised:
        check_filter("InputFilter", expression, "text/csv")
    assert f'Unexpected "{character}" in JsonPath' in str(raised.value)


@pytest.mark.parametrize("media_type", ["application/json", "application/jsonlines"])
@pytest.mark.parametrize(
    "expression", ["$.a.b", "$['a','SageMakerOutput']", "$.a[0]", "$.*", "$.features[:-1]"]
)
def test_filters_of_json_have_names(media_type, expression):
    check_filter("OutputFilter", expression, media_type)


@pytest.mark.parametrize("expression", ["a", "$..a", "$['a.b']", "$['a'", "$[0][1", "$[?(@.a)]"])
def test_what_is_no_path_is_refused(expression):
    with pytest.raises(Invalid, match=r"^Invalid OutputFilter: "):
        check_filter("OutputFilter", expression, "application/json")


def test_one_step_of_indexes_is_all_that_csv_has():
    with pytest.raises(Invalid, match=r"only indexes of columns"):
        check_filter("InputFilter", "$[0][1]", "text/csv")


@pytest.mark.parametrize(
    ("kind", "field"),
    [("InputFilter", "TransformInput.ContentType"), ("OutputFilter", "TransformOutput.Accept")],
)
@pytest.mark.parametrize("media_type", [None, "", "image/png"])
def test_filters_need_a_format_that_can_be_read(kind, field, media_type):
    with pytest.raises(Invalid, match=f"{kind} needs {field} to be one of text/csv, "):
        check_filter(kind, "$[0]", media_type)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content_type": "image/png", "accept": "application/json", "output_filter": "$.a"},
        {**CSV, "join_source": "Input", "input_filter": "$[1:]", "output_filter": "$[0,-1]"},
        {**CSV, "content_type": "text/csv;label_size=0", "join_source": "Input"},
        {"content_type": "application/json", "accept": "application/json", "join_source": "Input"},
        {**CSV, "content_type": "text/plain", "generate_inference_id": True},
        {**CSV, "output_filter": "$[0]", "assemble_with": "None", "split_type": "None"},
    ],
)
def test_fields_that_go_together_pass(fields):
    check_data_processing(**{"content_type": None, "accept": None, **fields})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"content_type": "image/png"}, "JoinSource Input needs TransformInput.ContentType"),
        ({"accept": "application/json"}, 'they are "application/json" and "text/csv"'),
        ({"accept": None}, "needs TransformOutput.Accept to be the same"),
        ({"assemble_with": "None"}, 'they are "None" and "Line"'),
        ({"split_type": "None", "assemble_with": "None"}, 'to be Line; it is "None"'),
        (
            {"content_type": "application/jsonlines", "accept": "application/jsonlines"}
            | {"split_type": "None", "assemble_with": "None"},
            'to be Line; it is "None"',
        ),
        ({"join_source": "None", "input_filter": "$[0]", "split_type": "TFRecord"}, "SplitType"),
        (
            {"join_source": "None", "accept": "image/png", "generate_inference_id": True},
            "GenerateInferenceId needs TransformOutput.Accept",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields, reason):
    with pytest.raises(Invalid, match=reason):
        check_data_processing(**{**CSV, "join_source": "Input", **fields})


def test_options_that_have_no_effect_are_refused():
    for options in ({"csv_quoted_newlines": True}, {"parquet_as": "text/csv"}):
        for content_type, split_type in (("image/png", "Line"), ("application/x-parquet", "None")):
            with pytest.raises(Invalid, match=r"SAGEHEN_TRANSFORM_.* is for objects of "):
                check_data_processing(
                    content_type=content_type,
                    accept=None,
                    split_type=split_type,
                    options=FormatOptions(**options),
                )


def test_options_that_have_an_effect_pass():
    check_data_processing(**CSV, options=FormatOptions(csv_quoted_newlines=True))
    check_data_processing(
        **{**CSV, "accept": "application/jsonlines", "content_type": "application/x-parquet"},
        join_source="Input",
        output_filter="$['an_id']",
        options=FormatOptions(parquet_as="application/jsonlines", extended_filters=True),
    )
