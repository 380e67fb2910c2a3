"""InputFilter, model, JoinSource and OutputFilter, as SageMaker's guide describes them."""

import csv
import io
import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.data_processing.errors import (
    AnswerError,
    FilterError,
    InputRecordError,
)
from sagehen.services.sagemaker.transform.data_processing.inference_ids import inference_ids
from sagehen.services.sagemaker.transform.data_processing.processing import (
    make_processing,
    processing_of,
)
from sagehen.services.sagemaker.transform.format_options import FormatOptions
from sagehen.services.sagemaker.transform.records.assembly import assemble
from sagehen.services.sagemaker.transform.records.cutting import Batch, make_cutter
from sagehen.services.sagemaker.transform.runner_messages import Capture, RunnerSpec, S3Access
from support.chunks import chunkings, divided

CSV = {"content_type": "text/csv", "accept": "text/csv", "split_type": "Line"}
LINES = {
    "content_type": "application/jsonlines",
    "accept": "application/jsonlines",
    "split_type": "Line",
}
JSON = {"content_type": "application/json", "accept": "application/json"}
IDS = {"inference_id": "id-{}".format, "inference_time": "2023-01-21T01:29:04Z"}
ROWS = Batch(b"1,2,3\n4,5,6", 2, 10)
DOCUMENTS = Batch(b'{"id": 1, "features": [1, 2]}\n{"id": 2, "features": [3, 4]}', 2, 10)


def request(batch, **fields) -> bytes:
    return make_processing(**fields).request(batch)


def output(batch, answer, **fields) -> bytes:
    return make_processing(**fields).output(batch, answer)


def test_nothing_to_do_is_no_processing():
    assert make_processing(**CSV) is None
    assert make_processing(content_type="image/png", input_filter="$", output_filter="") is None


@given(
    rows=st.lists(
        st.lists(st.text('a,"\n', max_size=4), min_size=2, max_size=4), min_size=1, max_size=20
    ),
    limit=st.integers(60, 200),
    strategy=st.sampled_from(["SingleRecord", "MultiRecord"]),
    sizes=chunkings(50),
)
def test_the_output_does_not_depend_on_batches(rows, limit, strategy, sizes):
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    data = text.getvalue().encode()
    options = FormatOptions(csv_quoted_newlines=True)
    processing = make_processing(
        **CSV, **IDS, input_filter="$[1:]", join_source="Input", options=options
    )
    cutter = make_cutter("Line", strategy, limit, "text/csv", csv_quoted_newlines=True)
    batches = [batch for piece in divided(data, sizes) for batch in cutter.feed(piece)]
    outputs = [
        assemble(batch, processing.output(batch, processing.request(batch)), "Line")
        for batch in batches + cutter.end()
    ]
    written = csv.reader(io.StringIO(b"".join(outputs).decode(), newline=""))
    time = IDS["inference_time"]
    expected = [[*row, *row[1:], f"id-{n}", time] for n, row in enumerate(rows)]
    assert [*written] == expected


class TestCsv:
    def test_the_model_gets_the_columns_of_the_input_filter(self):
        assert request(ROWS, **CSV, input_filter="$[1:]") == b"2,3\n5,6"
        assert output(ROWS, b"0.1\n0.2", **CSV, input_filter="$[1:]") == b"0.1\n0.2"

    def test_a_join_appends_the_answer_to_all_columns_of_the_input(self):
        fields = {**CSV, "input_filter": "$[1:]", "join_source": "Input"}
        assert request(ROWS, **fields) == b"2,3\n5,6"
        assert output(ROWS, b"0.1\n0.2\n", **fields) == b"1,2,3,0.1\n4,5,6,0.2\n"

    def test_the_output_filter_selects_of_the_join(self):
        fields = {**CSV, "join_source": "Input", "output_filter": "$[0,-1]"}
        assert request(ROWS, **fields) == ROWS.payload
        assert output(ROWS, b"0.1,0.3\n0.2,0.4\n", **fields) == b"1,0.3\n4,0.4\n"

    def test_without_a_join_the_output_filter_selects_of_the_answer(self):
        assert output(ROWS, b"a,b\nc,d\n", **CSV, output_filter="$[1]") == b"b\nd\n"

    def test_the_output_of_what_is_not_split_is_filtered_by_its_lines(self):
        fields = {"content_type": "image/png", "accept": "text/csv", "output_filter": "$[0]"}
        assert request(Batch(b"\x89PNG", 1, 0), **fields) == b"\x89PNG"
        assert output(Batch(b"\x89PNG", 1, 0), b"a,1\nb,2\n", **fields) == b"a\nb\n"

    def test_ids_are_the_last_two_columns(self):
        assert output(
            ROWS, b"7\n8", **CSV, **IDS, join_source="Input", output_filter="$[0,-1]"
        ) == (b"1,7,id-10,2023-01-21T01:29:04Z\n4,8,id-11,2023-01-21T01:29:04Z\n")

    def test_quotes_stay_as_they_are_written(self):
        batch = Batch(b'"a, ""b""",1,"x"', 1, 0)
        fields = {**CSV, "input_filter": "$[1:]", "join_source": "Input"}
        assert request(batch, **fields) == b'1,"x"'
        assert output(batch, b'"y,z"\n', **fields) == b'"a, ""b""",1,"x","y,z"\n'

    def test_values_stay_as_they_are_written(self):
        batch = Batch(b"007,1e3, 0.10", 1, 0)
        assert output(batch, b"1.50", **CSV, join_source="Input") == b"007,1e3, 0.10,1.50\n"

    def test_newlines_in_quotes_belong_to_a_row_by_option(self):
        batch = Batch(b'"a\nb",1\nc,2', 2, 0)
        fields = {**CSV, "options": FormatOptions(csv_quoted_newlines=True)}
        joined = output(batch, b'"x\ny"\nz\n', **fields, join_source="Input")
        assert joined == b'"a\nb",1,"x\ny"\nc,2,z\n'
        assert request(batch, **fields, input_filter="$[0]") == b'"a\nb"\nc'

    @pytest.mark.parametrize(
        "fields",
        [
            {"input_filter": "$[1:]"},
            {"join_source": "Input"},
            {"join_source": "Input", "output_filter": "$[0]"},
        ],
    )
    def test_a_quoted_newline_that_was_cut_is_an_error_that_names_the_option(self, fields):
        processing = make_processing(**CSV, **fields)
        batch = Batch(b'1,"ab",3\n4,"c\nd",6', 3, 10)
        with pytest.raises(InputRecordError, match=r"Record 11: bare .*CSV_QUOTED_NEWLINES") as e:
            processing.output(batch, b"1\n2\n3\n") if "join_source" in fields else (
                processing.request(batch)
            )
        assert e.value.record == 11

    def test_an_answer_that_is_no_csv_is_quoted(self):
        answer = b'{"predictions": [[1.5881, 2]]}'
        with pytest.raises(AnswerError) as raised:
            output(Batch(b"1", 1, 0), answer, **CSV, join_source="Input")
        assert str(raised.value) == (
            'Failed to parse output from the algorithm as CSV: bare " in non quoted field found '
            'near: {"predictions": [[1.5881, 2]]}'
        )
        assert raised.value.failure == "AlgorithmError"

    @pytest.mark.parametrize("answer", [b"", b"1", b"1,2", b"1\n2\n3\n"])
    @pytest.mark.parametrize("fields", [{"join_source": "Input"}, IDS])
    def test_an_answer_for_each_record_is_needed(self, answer, fields):
        with pytest.raises(AnswerError, match=r"mismatched line count .* 2 records \(10 to 11\)"):
            output(ROWS, answer, **CSV, **fields)

    def test_an_empty_answer_counts_where_it_is_needed(self):
        assert output(ROWS, b"\n2\n", **CSV, join_source="Input") == b"1,2,3,\n4,5,6,2\n"
        assert output(ROWS, b"1\n\n2\n\n", **CSV, join_source="Input") == b"1,2,3,1\n4,5,6,2\n"

    def test_no_answer_to_one_record_is_an_error(self):
        batch = Batch(b"1,2", 1, 0)
        assert output(batch, b"\n", **CSV, join_source="Input") == b"1,2,\n"
        with pytest.raises(AnswerError, match="answered 0"):
            output(batch, b"", **CSV, join_source="Input")

    def test_a_selected_row_is_never_an_empty_line(self):
        batch = Batch(b"1,\n2,3\n4,", 3, 0)
        assert request(batch, **CSV, input_filter="$[1:]") == b'""\n3\n""'

    def test_a_record_that_lacks_columns_is_named(self):
        batch = Batch(b"1,2\n3", 2, 5)
        with pytest.raises(InputRecordError, match=r'Record 6: the InputFilter "\$\[1\]" cannot'):
            request(batch, **CSV, input_filter="$[1]")
        with pytest.raises(InputRecordError, match=r'Record 6: the OutputFilter "\$\[2\]" cannot'):
            output(batch, b"a\nb", **CSV, join_source="Input", output_filter="$[2]")

    def test_ends_of_slices_are_exclusive_unless_the_job_says_otherwise(self):
        fields = {**CSV, "input_filter": "$[0:1]"}
        assert request(ROWS, **fields) == b"1\n4"
        inclusive = FormatOptions(inclusive_slices=True)
        assert request(ROWS, **fields, options=inclusive) == b"1,2\n4,5"

    def test_mixed_ranges_are_refused_in_the_words_of_sagemaker(self):
        with pytest.raises(FilterError) as raised:
            make_processing(**CSV, output_filter="$[0:2,246:]")
        assert str(raised.value) == (
            "Invalid JsonPath: $[0:2,246:]: only single range filters of format (eg: [1:5]) are "
            "supported. Format [0:2,246:] is not supported"
        )

    def test_mixed_ranges_are_allowed_by_option(self):
        extended = FormatOptions(extended_filters=True)
        assert request(ROWS, **CSV, input_filter="$[0,2:]", options=extended) == b"1,3\n4,6"

    @pytest.mark.parametrize("records", [2047, 2048, 2049, 4096, 5000])
    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    def test_large_batches_are_processed_in_parts(self, records, end):
        numbers = range(7, 7 + records)
        batch = Batch(b"\n".join(b"%d,x" % n for n in numbers), records, 7)
        answer = (end or b"\n").join(b"%d" % n for n in numbers) + end
        fields = {**CSV, **IDS, "input_filter": "$[0]", "join_source": "Input"}
        time = IDS["inference_time"]
        assert request(batch, **fields).split(b"\n") == [b"%d" % n for n in numbers]
        joined = output(batch, answer, **fields).decode().splitlines()
        assert joined == [f"{n},x,{n},id-{n},{time}" for n in numbers]

    def test_empty_answers_of_a_large_batch_count(self):
        records = 5000
        batch = Batch(b"\n".join([b"1"] * records), records, 0)
        joined = output(batch, b"\n" * records, **CSV, join_source="Input")
        assert joined == b"1,\n" * records

    def test_a_record_deep_in_a_large_batch_is_named(self):
        rows = [b"1,2"] * 5000
        rows[4000] = b"1"
        batch = Batch(b"\n".join(rows), 5000, 7)
        for fields in ({"input_filter": "$[1]"}, {"input_filter": "$[1:]"}):
            with pytest.raises(InputRecordError, match="Record 4007: "):
                request(batch, **CSV, **fields)
        rows[4000] = b'1,"2'
        batch = Batch(b"\n".join(rows), 5000, 7)
        with pytest.raises(InputRecordError, match="Record 4007: bare"):
            request(batch, **CSV, input_filter="$[1:]")


class TestJsonLines:
    def test_the_model_gets_what_the_input_filter_selects(self):
        assert request(DOCUMENTS, **LINES, input_filter="$.features") == b"[1,2]\n[3,4]"

    def test_requests_keep_the_order_of_keys(self):
        batch = Batch(b'{"in": {"b": 1, "a": 2}}', 1, 0)
        assert request(batch, **LINES, input_filter="$.in") == b'{"b":1,"a":2}'

    def test_a_join_adds_the_answer_to_the_object(self):
        joined = output(DOCUMENTS, b'{"score": 0.5}\n{"score": 1}\n', **LINES, join_source="Input")
        assert joined == (
            b'{"SageMakerOutput":{"score":0.5},"features":[1,2],"id":1}\n'
            b'{"SageMakerOutput":{"score":1},"features":[3,4],"id":2}\n'
        )

    def test_a_join_overwrites_a_key_of_that_name(self):
        batch = Batch(b'{"SageMakerOutput": "old"}', 1, 0)
        assert output(batch, b"1", **LINES, join_source="Input") == b'{"SageMakerOutput":1}\n'

    def test_a_join_with_what_is_no_object_makes_one(self):
        batch = Batch(b"[1, 2]\n3", 2, 0)
        assert output(batch, b"0.5\n0.6", **LINES, join_source="Input") == (
            b'{"SageMakerInput":[1,2],"SageMakerOutput":0.5}\n'
            b'{"SageMakerInput":3,"SageMakerOutput":0.6}\n'
        )

    def test_the_output_filter_selects_of_the_join(self):
        fields = {**LINES, "join_source": "Input", "output_filter": "$['id','SageMakerOutput']"}
        assert output(DOCUMENTS, b"5\n6", **fields) == (
            b'{"SageMakerOutput":5,"id":1}\n{"SageMakerOutput":6,"id":2}\n'
        )

    def test_without_a_join_the_output_filter_selects_of_the_answer(self):
        fields = {"content_type": "text/csv", "accept": "application/jsonlines"}
        answer = b'{"class": "a", "p": 1}\n{"class": "b", "p": 1}'
        found = output(ROWS, answer, **fields, split_type="Line", output_filter="$['class']")
        assert found == b'"a"\n"b"\n'

    def test_ids_are_keys_of_their_own(self):
        joined = output(DOCUMENTS, b"5\n6", **LINES, **IDS, join_source="Input").splitlines()
        assert joined[0] == (
            b'{"SageMakerInferenceId":"id-10","SageMakerInferenceTime":"2023-01-21T01:29:04Z",'
            b'"SageMakerOutput":5,"features":[1,2],"id":1}'
        )
        assert json.loads(output(DOCUMENTS, b"5\n6", **LINES, **IDS).splitlines()[1]) == {
            "SageMakerInferenceId": "id-11",
            "SageMakerInferenceTime": "2023-01-21T01:29:04Z",
            "SageMakerOutput": 6,
        }

    def test_large_numbers_and_text_stay_what_they_are(self):
        batch = Batch('{"n": 123456789012345678901234567890, "t": "ü"}'.encode(), 1, 0)
        joined = output(batch, b"1", **LINES, join_source="Input")
        assert json.loads(joined)["n"] == 123456789012345678901234567890
        assert "ü".encode() in joined

    def test_one_answer_may_have_several_lines(self):
        batch = Batch(b'{"id": 1}', 1, 0)
        joined = output(batch, b'{\n "a": 1\n}\n', **LINES, join_source="Input")
        assert joined == b'{"SageMakerOutput":{"a":1},"id":1}\n'

    @pytest.mark.parametrize("records", [2047, 2048, 2049, 4096, 5000])
    @pytest.mark.parametrize("end", [b"", b"\n"])
    def test_large_batches_are_processed_in_parts(self, records, end):
        numbers = range(7, 7 + records)
        batch = Batch(b"\n".join(b'{"n": %d, "x": 1}' % n for n in numbers), records, 7)
        answer = b"\n".join(b"%d" % n for n in numbers) + end
        fields = {**LINES, **IDS, "input_filter": "$.n", "join_source": "Input"}
        assert request(batch, **fields) == answer.removesuffix(b"\n")
        joined = [json.loads(line) for line in output(batch, answer, **fields).splitlines()]
        assert [line["n"] for line in joined] == [*numbers]
        assert [line["SageMakerOutput"] for line in joined] == [*numbers]
        assert [line["SageMakerInferenceId"] for line in joined] == [f"id-{n}" for n in numbers]

    def test_a_large_batch_may_have_an_answer_of_other_lines(self):
        records = 3000
        batch = Batch(b"\n".join([b"1"] * records), records, 0)
        answer = b"\n\n".join([b"2"] * records)
        joined = output(batch, answer, **LINES, join_source="Input")
        assert joined == b'{"SageMakerInput":1,"SageMakerOutput":2}\n' * records
        document = b"[\n" + b",\n".join([b"1"] * (records - 2)) + b"\n]"
        assert output(batch, document, **LINES, output_filter="$[0]") == b"1\n"
        with pytest.raises(AnswerError, match=r"was sent 3000 records .* and answered 1"):
            output(batch, document, **LINES, join_source="Input")

    def test_a_record_deep_in_a_large_batch_is_named(self):
        lines = [b'{"n": 1}'] * 5000
        lines[4000] = b"{}"
        with pytest.raises(InputRecordError, match="Record 4007: ") as raised:
            request(Batch(b"\n".join(lines), 5000, 7), **LINES, input_filter="$.n")
        assert raised.value.record == 4007

    def test_an_answer_that_is_no_json_is_quoted(self):
        with pytest.raises(AnswerError, match=r"algorithm as JSON Lines: .* near: 0.5,0.6"):
            output(DOCUMENTS, b"0.5,0.6", **LINES, join_source="Input")

    @pytest.mark.parametrize("answer", [b"", b"1", b"[1,2]", b"1\n2\n3"])
    def test_an_answer_for_each_record_is_needed(self, answer):
        with pytest.raises(AnswerError, match="mismatched line count"):
            output(DOCUMENTS, answer, **LINES, join_source="Input")

    @pytest.mark.parametrize("line", [b"{", b"no", b"\xff", b'{"a":1} {"a":2}', b"  "])
    def test_a_record_that_is_no_json_is_named(self, line):
        batch = Batch(b'{"a": 1}\n' + line + b'\n{"a": 2}', 3, 10)
        with pytest.raises(InputRecordError, match=r"^Record 11: ") as raised:
            request(batch, **LINES, input_filter="$.a")
        assert raised.value.record == 11
        assert raised.value.failure == "ClientError"

    def test_nesting_has_a_bound(self):
        deep = b"[" * 100_000 + b"]" * 100_000
        with pytest.raises(InputRecordError, match="Record 0"):
            request(Batch(deep, 1, 0), **LINES, input_filter="$[0]")
        with pytest.raises(AnswerError):
            output(Batch(b"1", 1, 0), deep, **LINES, join_source="Input")

    def test_a_record_that_lacks_a_key_is_named(self):
        batch = Batch(b'{"a": 1}\n{"b": 2}', 2, 3)
        with pytest.raises(InputRecordError, match=r'Record 4: the InputFilter .* it has no "a"'):
            request(batch, **LINES, input_filter="$.a")


class TestJson:
    def test_a_document_is_one_record(self):
        batch = Batch(b'{\n "id": 1,\n "x": [1, 2]\n}', 1, 0)
        fields = {**JSON, "input_filter": "$.x", "join_source": "Input"}
        assert request(batch, **fields) == b"[1,2]"
        joined = output(batch, b'{\n "y": 3\n}\n', **fields)
        assert joined == b'{"SageMakerOutput":{"y":3},"id":1,"x":[1,2]}'

    def test_lines_of_json_are_records(self):
        fields = {**JSON, "split_type": "Line"}
        assert output(DOCUMENTS, b"1\n2\n", **fields, join_source="Input").count(b"\n") == 2

    def test_an_answer_for_several_records_can_be_filtered_as_a_whole(self):
        fields = {"content_type": "text/csv", "accept": "application/json", "split_type": "Line"}
        answer = b'{\n "predictions": [1, 2]\n}'
        assert output(ROWS, answer, **fields, output_filter="$.predictions") == b"[1,2]\n"


class TestRunnerSpec:
    SPEC: ClassVar = {
        "job_id": "0" * 32,
        "job_name": "job",
        "job_arn": "arn:aws:sagemaker:us-east-1:000000000000:transform-job/job",
        "s3": S3Access(address="unix:/nowhere", access_key="a", secret_key="s", region="r"),
        "started_at": 1674264544.9,
        "input_type": "S3Prefix",
        "input_uri": "s3://bucket/in",
        "output_uri": "s3://bucket/out",
        **CSV,
    }

    def test_a_job_without_processing_has_none(self):
        assert processing_of(RunnerSpec(**self.SPEC), "in/a.csv") is None

    def test_ids_follow_from_job_object_and_record(self):
        capture = Capture(uri="s3://bucket/captured", generate_inference_id=True)
        processing = processing_of(RunnerSpec(**self.SPEC, capture=capture), "in/a.csv")
        expected = inference_ids(self.SPEC["job_arn"], "in/a.csv")(11)
        lines = processing.output(ROWS, b"7\n8").decode().splitlines()
        assert lines[1] == f"8,{expected},2023-01-21T01:29:04Z"

    def test_options_of_the_job_are_followed(self):
        spec = RunnerSpec(**self.SPEC, input_filter="$[0:1]", options={"SLICES": "inclusive"})
        assert processing_of(spec, "in/a.csv").request(ROWS) == b"1,2\n4,5"

    def test_a_wrong_option_is_refused(self):
        spec = RunnerSpec(**self.SPEC, options={"SLICES": "both"})
        with pytest.raises(Invalid, match='SAGEHEN_TRANSFORM_SLICES is "both"; it has to be'):
            processing_of(spec, "in/a.csv")
