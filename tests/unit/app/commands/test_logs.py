"""Reading logs: in the order of time, while they grow and are rotated."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.app.commands import logs
from sagehen.app.commands.logs import Selection, parse_since, read_logs
from sagehen.base.errors import Invalid, NotFound
from sagehen.base.home import Home, prepare_home

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z"""
MINUTE = "2026-11-22T12:30"


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")


def role_line(second: int, role: str, text: str) -> str:
    return f"{MINUTE}:{second:02}.000Z INFO {role} sagehen.x: {text}\n"


def told(home: Home, name: str | None = None, lines: int = 50, **wanted: object) -> list[str]:
    selection = Selection(lines=lines, **wanted)  # type: ignore[arg-type]
    return list(read_logs(home, name, selection, follow=False))


class Printer:
    """Containers that print at times of the test's choosing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[str, ContainerLog] = {}
        self.now = NOON

    def __call__(self, second: float, container: str, line: str) -> None:
        self.now = NOON + second
        if container not in self.logs:
            path = self.folder / f"{container}.log"
            self.logs[container] = ContainerLog(path, 2**20, now=lambda: self.now)
        self.logs[container].add(line)


@pytest.fixture
def prints(home: Home) -> Callable[[float, str, str], None]:
    return Printer(home.logs / "endpoints" / "house")


class TestTheServersOwn:
    def test_they_are_told_in_the_order_of_time_and_counted_together(self, home: Home) -> None:
        (home.logs / "agent.log").write_text(
            role_line(1, "agent", "a") + role_line(4, "agent", "d") + role_line(5, "agent", "e")
        )
        traceback = "Traceback (most recent call last):\n  File x\nKeyError: 1\n"
        (home.logs / "control.log").write_text(
            role_line(2, "control", "b") + traceback + role_line(3, "control", "c")
        )
        lines = [*told(home)]
        assert [line[-1] for line in lines] == ["a", "b", ":", "x", "1", "c", "d", "e"]
        assert told(home, lines=3) == lines[-3:]
        assert told(home, lines=0) == []
        assert lines[0] == role_line(1, "agent", "a").rstrip()

    def test_they_are_followed_over_a_rotation(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = home.logs / "control.log"
        log.write_text("one\ntwo\n")
        steps = iter(
            [
                lambda: log.write_text("one\ntwo\nthree\n"),
                lambda: log.rename(f"{log}.1"),
                lambda: log.write_text("four\n"),
            ]
        )
        clock = SimpleNamespace(sleep=lambda _: next(steps)())
        monkeypatch.setattr(logs, "time", clock)
        lines = read_logs(home, None, Selection(lines=1), follow=True)
        assert [next(lines) for _ in range(3)] == ["two", "three", "four"]

    def test_one_that_goes_while_it_is_looked_at_is_passed_over(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (home.logs / "control.log").write_text("a line\n")
        gone = home.logs / "agent.log"
        gone.write_text("a line\n")
        stat = Path.stat

        def stat_without(path: Path, **how: bool) -> object:
            if path == gone:
                raise FileNotFoundError
            return stat(path, **how)

        monkeypatch.setattr(Path, "stat", stat_without)
        assert told(home) == ["a line"]


class TestContainers:
    def test_a_line_has_its_time_and_one_container_no_name(self, home: Home, prints) -> None:
        prints(0, "AllTraffic/i-1/primary", "hello")
        own = "2026-11-22 12:00:00,123 INFO sagehen.containers.modelserver.program: Serving."
        prints(1.5, "AllTraffic/i-1/primary", own)
        assert told(home, "house") == [
            "2027-01-15T08:00:00.000Z hello",
            "2027-01-15T08:00:01.500Z INFO sagehen.containers.modelserver.program: Serving.",
        ]

    def test_several_are_told_apart_by_what_they_differ_in(self, home: Home, prints) -> None:
        prints(2, "AllTraffic/i-1/primary", "b")
        prints(1, "AllTraffic/i-2/primary", "a")
        prints(3, "AllTraffic/i-2/primary", "c")
        assert [line.split(" ", 1)[1] for line in told(home, "house", lines=2)] == [
            "i-1 | b",
            "i-2 | c",
        ]

    def test_lines_may_be_chosen_by_time_and_by_what_they_say(self, home: Home, prints) -> None:
        for second in range(20):
            prints(second, "v/i/c", f"line {second}")
        last = [line.split()[-1] for line in told(home, "house", since=NOON + 17)]
        assert last == ["17", "18", "19"]
        found = told(home, "house", lines=2, pattern=re.compile(r"line 1?[357]$"))
        assert [line.split()[-1] for line in found] == ["15", "17"]

    def test_the_last_of_many_are_found(self, home: Home, prints) -> None:
        for _ in range(3):
            prints(0, "v/i/c", "\n".join(["x" * 1000] * 90))
        prints(1, "v/i/c", "end")
        lines = told(home, "house", lines=200)
        assert len(lines) == 200
        assert lines[-1].endswith("end")

    def test_they_are_followed(self, home: Home, prints, monkeypatch: pytest.MonkeyPatch) -> None:
        prints(0, "v/i-1/c", "one")
        steps = iter([lambda: prints(1, "v/i-2/c", "two"), lambda: prints(2, "v/i-1/c", "three")])
        clock = SimpleNamespace(sleep=lambda _: next(steps)(), time=lambda: NOON)
        monkeypatch.setattr(logs, "time", clock)
        lines = read_logs(home, "house", Selection(lines=9), follow=True)
        assert [next(lines).split(" ", 1)[1] for _ in range(3)] == [
            "one",
            "i-2 | two",
            "i-1 | three",
        ]

    def test_a_job_s_are_found_by_its_name(self, home: Home, prints) -> None:
        job = Printer(home.job_log("house"))
        job(0, "algo-1", "epoch 1")
        assert [line[-7:] for line in told(home, "house")] == ["epoch 1"]
        prints(0, "v/i/c", "serving")
        assert [line[-7:] for line in told(home, "house")] == ["serving"]
        of_job = read_logs(home, "house", Selection(lines=9), follow=False, job=True)
        assert [line[-7:] for line in of_job] == ["epoch 1"]

    def test_a_transform_job_s_are_found_unless_a_training_job_has_its_name(self, home) -> None:
        Printer(home.transform_log("house"))(0, "i-1", "one batch")
        assert [line[-9:] for line in told(home, "house")] == ["one batch"]
        Printer(home.job_log("house"))(0, "algo-1", "epoch 1")
        assert [line[-7:] for line in told(home, "house")] == ["epoch 1"]

    @pytest.mark.parametrize("name", ["nothing", "..", "../../run"])
    def test_a_name_without_logs_is_said(self, home: Home, prints, name: str) -> None:
        prints(0, "v/i/c", "of another")
        with pytest.raises(NotFound, match="no logs of an endpoint, training or transform job"):
            told(home, name)


class TestSince:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("90s", NOON - 90),
            ("10m", NOON - 600),
            ("1d", NOON - 86400),
            ("2027-01-15T08:00:00Z", NOON),
            ("2027-01-15T08:00:00", NOON),
            ("2027-01-15T10:00:00+02:00", NOON),
        ],
    )
    def test_an_age_or_a_time(self, text: str, expected: float) -> None:
        assert parse_since(text, NOON) == expected

    @pytest.mark.parametrize("text", ["", "10", "10 minutes", "yesterday"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(Invalid, match="--since takes an age"):
            parse_since(text, NOON)
