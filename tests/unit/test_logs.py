"""Reading logs while they grow and are rotated."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sagehen import logs
from sagehen.home import Home, prepare_home
from sagehen.logs import read_logs


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")


def test_lines_are_followed_over_a_rotation(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    log = home.logs / "control.log"
    log.write_text("one\ntwo\n")
    steps = iter(
        [
            lambda: log.write_text("one\ntwo\nthree\n"),
            lambda: log.rename(f"{log}.1"),
            lambda: log.write_text("four\n"),
        ]
    )
    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=lambda _: next(steps)()))
    told = read_logs(home, None, lines=1, follow=True)
    assert [next(told) for _ in range(3)] == [
        f"control | {word}" for word in ("two", "three", "four")
    ]


def test_a_log_that_goes_while_it_is_looked_at_is_passed_over(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("control", "gateway"):
        (home.logs / f"{name}.log").write_text("a line\n")
    found = sorted([home.logs / "agent.log", *home.logs.glob("*.log")])
    monkeypatch.setattr(logs, "_find", lambda folder, nested: found)
    grow = lambda _: (home.logs / "gateway.log").write_text("a line\n2\n")  # noqa: E731
    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=grow))
    told = read_logs(home, None, lines=1, follow=True)
    assert [next(told) for _ in range(3)] == ["control | a line", "gateway | a line", "gateway | 2"]
