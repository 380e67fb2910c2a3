"""Pieces of a download, and where a job's code comes from."""

import io
import json

import pytest

from sagehen.agent.jobs.data import downloads as module
from sagehen.agent.jobs.data.downloads import ChunkReader, code_location
from sagehen.agent.jobs.data.inputs import InputFile
from sagehen.base.errors import Invalid
from sagehen.frame.s3_locations import Location
from support.jobs import MakeSpec


def test_chunks_are_read_as_one_file() -> None:
    checks: list[int] = []
    reader = ChunkReader([b"ab", b"", b"cdef"], lambda: checks.append(1))
    assert reader.readable()
    assert io.BufferedReader(reader, 3).read() == b"ab"
    whole = io.BufferedReader(ChunkReader([b"ab", b"cdef"], lambda: checks.append(1)), 3)
    assert (whole.read(3), whole.read()) == (b"abc", b"def")
    assert checks, "a job that is over is noticed"


def test_a_check_that_raises_ends_the_reading() -> None:
    def check() -> None:
        raise RuntimeError("over")

    with pytest.raises(RuntimeError, match="over"):
        io.BufferedReader(ChunkReader([b"ab"], check)).read()


@pytest.mark.parametrize("quoted", [True, False])
def test_code_in_s3_is_named_as_json_or_plain(quoted: bool, make_spec: MakeSpec) -> None:
    url = "s3://bucket/code.tar.gz"
    spec = make_spec(
        hyperparameters={"sagemaker_submit_directory": json.dumps(url) if quoted else url}
    )
    assert code_location(spec) == Location("bucket", "code.tar.gz")


@pytest.mark.parametrize("value", [None, "/opt/ml/input/data/code", "7", "{}"])
def test_other_code_is_in_the_container(value: str | None, make_spec: MakeSpec) -> None:
    parameters = {} if value is None else {"sagemaker_submit_directory": value}
    assert code_location(make_spec(hyperparameters=parameters)) is None


def test_a_malformed_address_of_code_is_invalid(make_spec: MakeSpec) -> None:
    with pytest.raises(Invalid):
        code_location(make_spec(hyperparameters={"sagemaker_submit_directory": "s3://"}))


def test_small_objects_share_a_thread_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BATCH_OBJECTS", 2)
    monkeypatch.setattr(module, "MAX_BATCH_BYTES", 10)
    objects = [
        InputFile(location=Location("b", name), size=size, modified_at=0, path=name)
        for name, size in zip("abcde", (1, 1, 6, 6, 20), strict=True)
    ]
    batches = [[item.path for item in batch] for batch in module._batches(objects)]
    assert batches == [["a", "b"], ["c"], ["d"], ["e"]]
    assert list(module._batches([])) == []
