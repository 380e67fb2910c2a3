"""The variables that define an endpoint's offline results."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.offline_results.definition import (
    OfflineResults,
    read_offline_results,
    read_selector,
)

V = "SAGEHEN_OFFLINE_RESULTS"
SET = {V: "s3://results/job/", f"{V}_KEY": "0"}


def test_without_variables_there_are_none() -> None:
    assert read_offline_results({}) is None
    assert read_offline_results({"SAGEHEN_GPU_FRACTION": "0.5", "OFFLINE": "x"}) is None


def test_the_least_definition_has_defaults() -> None:
    results = read_offline_results(SET)
    assert results == OfflineResults(
        source="s3://results/job/", key="0", answer="rest", request_key="0", only=False
    )
    assert results.is_csv
    assert (results.location.bucket, results.location.key) == ("results", "job/")


def test_every_variable_is_read() -> None:
    environment = {
        V: " s3://results/job ",
        f"{V}_KEY": "$.user.id",
        f"{V}_ANSWER": "SageMakerOutput",
        f"{V}_REQUEST_KEY": "2",
        f"{V}_ONLY": "True",
        f"{V}_MAX_BROKEN_ROWS": "0.1%",
        "OTHER": "x",
    }
    results = read_offline_results(environment)
    assert results == OfflineResults(
        source="s3://results/job",
        key="$.user.id",
        answer="SageMakerOutput",
        request_key="2",
        only=True,
        max_broken_rows="0.1%",
    )
    assert not results.is_csv
    assert results.tolerance.text == "0.1%"


def test_broken_rows_are_a_number_or_a_share() -> None:
    with pytest.raises(Invalid, match=f"{V}_MAX_BROKEN_ROWS is 'many', which is neither"):
        read_offline_results({**SET, f"{V}_MAX_BROKEN_ROWS": "many"})


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("0", 0),
        ("-1", -1),
        ("12", 12),
        ("id", ("id",)),
        ("$.id", ("id",)),
        ("$.user.id", ("user", "id")),
        ("user.id", ("user", "id")),
        ("naïve-name_1", ("naïve-name_1",)),
    ],
)
def test_selectors_are_columns_or_fields(text: str, selector) -> None:
    assert read_selector(text) == selector


@pytest.mark.parametrize(
    "text", ["", "$", "$.", ".", "a..b", "a.", "$[0]", "a[0]", "a b", "$.*", "1234567.", "a'b"]
)
def test_what_selects_nothing_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="selects nothing"):
        read_selector(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({V: ""}, f"{V}_KEY needs {V}. It is the S3 prefix"),
        ({f"{V}_KEY": ""}, f"{V} needs {V}_KEY. It is the column"),
        ({V: "results/job"}, f"{V} is 'results/job'. It is the S3 prefix"),
        ({V: "https://results.s3.amazonaws.com/job"}, "It is the S3 prefix"),
        ({V: "s3:///job"}, "It is the S3 prefix"),
        ({f"{V}_KEY": "$[0]"}, f"{V}_KEY: '\\$\\[0\\]' selects nothing"),
        ({f"{V}_ANSWER": "id"}, "do not go together"),
        ({f"{V}_KEY": "id", f"{V}_ANSWER": "1"}, "do not go together"),
        ({f"{V}_KEY": "user.id"}, f"{V}_ANSWER must be a field or `line`"),
        ({f"{V}_ONLY": "yes"}, f"{V}_ONLY is 'yes'; it must be true or false"),
        ({f"{V}_KEYS": "0"}, f"There is no variable {V}_KEYS. There are {V}, {V}_ANSWER"),
        ({f"{V}X": "0"}, f"There is no variable {V}X"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_offline_results(SET | change)
