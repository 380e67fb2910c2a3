"""The last lines of the logs of one machine."""

from pathlib import Path

import pytest

from sagehen.base.home import Home
from sagehen.services.monitoring.logs import tail
from sagehen.services.monitoring.logs.tail import TailPage, TailRequest, read_tail

LINES = 2000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Home(tmp_path).logs / tail.ENDPOINTS / "e"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def page_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(tail, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(tail, "_FIRST_READ_BYTES", 2_000)
    monkeypatch.setattr(tail, "_LEAST_READ_BYTES", 500)
    return tail.PAGE_BYTES


def last(folder: Path, lines: int) -> TailPage:
    home = Home(folder.parent.parent.parent)
    return read_tail(home, TailRequest(name="e", lines=lines), 1e9)


def texts(page: TailPage, log: str = "i-0.log") -> list[str]:
    return [line.text for line in page.lines if line.log == log]


def write(folder: Path, logs: int) -> None:
    for number in range(logs):
        text = "".join(f"line {line:>10}\n" for line in range(LINES))
        (folder / f"i-{number}.log").write_text(text)


def test_the_last_lines_of_each_log(folder: Path, page_bytes: int) -> None:
    write(folder, 2)
    page = last(folder, 3)
    for log in ("i-0.log", "i-1.log"):
        assert texts(page, log) == [f"line {number:>10}" for number in range(LINES - 3, LINES)]
        assert page.positions[log] == (folder / log).stat().st_size


@pytest.mark.parametrize("lines", [LINES, 2**70])
def test_a_huge_number_of_lines_is_what_fits_into_one_answer(
    folder: Path, page_bytes: int, lines: int
) -> None:
    write(folder, 1)
    page = last(folder, lines)
    shown = texts(page)
    assert shown[-1] == f"line {LINES - 1:>10}"
    assert page_bytes - 100 <= sum(len(text) + 1 for text in shown) <= page_bytes + 100
    assert page.positions["i-0.log"] == (folder / "i-0.log").stat().st_size, "no more follows"


def test_many_logs_share_one_answer(folder: Path, page_bytes: int) -> None:
    write(folder, 20)
    page = last(folder, 2**70)
    for number in range(20):
        assert texts(page, f"i-{number}.log")[-1] == f"line {LINES - 1:>10}"
    size = sum(len(line.text) + 1 for line in page.lines)
    assert size <= page_bytes + 20 * 600
