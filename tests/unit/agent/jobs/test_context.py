"""Reports of ended attempts on disk."""

from pathlib import Path

import pytest

from sagehen.agent.jobs.context import EndedReports
from sagehen.frame.job_specs import JobOutcome, JobReport


@pytest.fixture
def reports(tmp_path: Path) -> EndedReports:
    reports = EndedReports(tmp_path / "ended")
    assert reports.open() == []
    return reports


def report(attempt_id: str) -> JobReport:
    return JobReport(attempt_id=attempt_id, outcome=JobOutcome.COMPLETED, exit_code=0)


def test_reports_are_there_after_a_restart_until_forgotten(reports: EndedReports) -> None:
    reports.save(report("b"))
    reports.save(report("a"))
    assert reports.open() == [report("a"), report("b")]
    reports.forget("a")
    reports.forget("never saved")
    assert reports.open() == [report("b")]


def test_an_unfinished_report_is_removed(reports: EndedReports, tmp_path: Path) -> None:
    draft = tmp_path / "ended" / "a.new"
    draft.write_bytes(b"{")
    assert reports.open() == []
    assert not draft.exists()


def test_an_unreadable_report_is_set_aside(
    reports: EndedReports, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports.save(report("a"))
    (tmp_path / "ended" / "b.json").write_bytes(b"no report")
    assert reports.open() == [report("a")]
    assert (tmp_path / "ended" / "b.unreadable").exists()
    assert "The report b.json cannot be read" in caplog.text
    assert reports.open() == [report("a")]
