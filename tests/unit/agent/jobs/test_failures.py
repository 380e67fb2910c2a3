"""FailureReasons of jobs: SageMaker's beginning, a cause, and never too long."""

import os
from pathlib import Path

import pytest

from sagehen.agent.instances.failures import MAX_REASON_CHARACTERS
from sagehen.agent.jobs.failures import (
    JobFailed,
    JobLost,
    disk_full,
    exit_code,
    nothing_found,
    out_of_memory,
    script_failed,
)

LONG = "é" * 2 * MAX_REASON_CHARACTERS


def test_the_scripts_own_failure_goes_before_its_log(tmp_path: Path) -> None:
    failure = tmp_path / "failure"
    assert script_failed(failure, ["ValueError: bad"], 1) == (
        "AlgorithmError: ValueError: bad, exit code: 1"
    )
    failure.write_text("ClientError: my input\n")
    assert script_failed(failure, ["ValueError: bad"], 2) == "ClientError: my input, exit code: 2"


def test_a_failure_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "failure")
    reason = script_failed(tmp_path / "failure", ["ValueError: bad"], 1)
    assert reason == "AlgorithmError: ValueError: bad, exit code: 1"


@pytest.mark.parametrize("status", [1, -9])
def test_a_reason_is_never_too_long_and_keeps_its_end(status: int, tmp_path: Path) -> None:
    (tmp_path / "failure").write_text(LONG)
    reasons = [script_failed(tmp_path / "failure", [], status), str(JobLost(LONG))]
    assert [len(reason) for reason in reasons] == [MAX_REASON_CHARACTERS] * 2
    assert reasons[0].endswith(f", exit code: {exit_code(status)}")
    assert reasons[1].endswith(")")
    assert len(str(JobFailed(LONG))) == MAX_REASON_CHARACTERS
    assert len(out_of_memory(LONG, status)) == MAX_REASON_CHARACTERS


def test_characters_that_no_database_holds_are_replaced() -> None:
    assert str(JobFailed("a\0b\ud800c")) == "a\ufffdb?c"


def test_a_signal_has_a_shells_exit_code() -> None:
    assert [exit_code(status) for status in (0, 3, -9, -15)] == [0, 3, 137, 143]


def test_what_the_store_says_is_quoted() -> None:
    assert nothing_found("s3://b/k", "b").endswith('permissions on bucket "b".')
    assert nothing_found("s3://b/k", "b", "gone").endswith("Error message from S3: gone")


def test_a_full_disk_has_its_figures_and_advice() -> None:
    reason = disk_full("The job was ended.", free=10, size=1000)
    assert "10 of its 1000 bytes are free. The job was ended. Write less" in reason
