"""`sagehen logs` over the machines of a cluster."""

import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.app.commands import cluster_logs
from sagehen.app.commands.cluster_logs import is_in_cluster, read_cluster_logs
from sagehen.app.commands.logs import Selection
from sagehen.base.errors import NotFound, Unavailable
from sagehen.base.home import Home, prepare_home
from sagehen.services.monitoring.logs import tail
from sagehen.services.monitoring.logs.tail import TailRequest, read_tail

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z"""


class Cluster:
    """Two nodes, and a control that asks both."""

    def __init__(self, folder):
        self.homes = {name: Home(folder / name) for name in ("a", "b")}
        self.own = prepare_home(folder / "own")
        self.missing = set()
        self.is_away = False
        self.now = NOON
        self.logs = {}
        self.warnings = []
        self.requests = 0

    def prints(self, node, path, line, after=1.0):
        self.now += after
        if (node, path) not in self.logs:
            file = self.homes[node].logs / f"{path}.log"
            self.logs[node, path] = ContainerLog(file, 2**20, lambda: self.now)
        self.logs[node, path]._write(f"{line}\n".encode())

    def call_control(self, home, path, method, body, timeout_seconds):
        assert (home, path, method) == (self.own, "logs", "POST")
        self.requests += 1
        if self.is_away:
            raise Unavailable("The server does not answer.")
        request = msgspec.convert(body["request"], TailRequest)
        pages = {}
        for name in self.homes.keys() - self.missing:
            known = body["positions"]
            positions = None if known is None else known.get(name, {})
            own = msgspec.structs.replace(request, positions=positions)
            pages[name] = msgspec.to_builtins(read_tail(self.homes[name], own, self.now + 60))
        return {"url": "http://x", "nodes": pages, "missing": sorted(self.missing)}

    def read(self, name="house", lines=50, follow=False, job=False, **wanted):
        selection = Selection(lines=lines, **wanted)
        warn = self.warnings.append
        return read_cluster_logs(self.own, name, selection, follow=follow, job=job, warn=warn)

    def texts(self, *args, **more):
        return [line.split(" ", 1)[1] for line in self.read(*args, **more)]


@pytest.fixture
def cluster(short_path, monkeypatch):
    made = Cluster(short_path)
    monkeypatch.setattr(cluster_logs, "call_control", made.call_control)
    yield made
    for log in made.logs.values():
        log._close()


AT = "endpoints/house/AllTraffic"


def test_lines_of_all_machines_are_in_the_order_of_time(cluster):
    cluster.prints("a", f"{AT}/i-1/primary", "one")
    cluster.prints("b", f"{AT}/i-2/primary", "two")
    cluster.prints("a", f"{AT}/i-1/primary", "three")
    assert list(cluster.read()) == [
        "2027-01-15T08:00:01.000Z i-1 | one",
        "2027-01-15T08:00:02.000Z i-2 | two",
        "2027-01-15T08:00:03.000Z i-1 | three",
    ]
    assert cluster.texts(lines=2) == ["i-2 | two", "i-1 | three"]
    assert cluster.texts(since=NOON + 3) == ["i-1 | three"]
    assert cluster.warnings == []


def test_an_instance_that_has_moved_is_one(cluster):
    cluster.prints("b", f"{AT}/i-1/primary", "old")
    cluster.prints("a", f"{AT}/i-1/primary", "new")
    assert cluster.texts() == ["old", "new"]


def test_all_lines_are_searched_page_by_page(cluster, monkeypatch):
    monkeypatch.setattr(tail, "PAGE_BYTES", 100)
    for number in range(60):
        cluster.prints("ab"[number % 2], f"{AT}/i-{number % 4}/primary", f"line {number}")
    found = cluster.texts(lines=100, pattern=re.compile("line .*"))
    assert [line.rpartition(" ")[2] for line in found] == [str(number) for number in range(60)]
    assert cluster.requests > 1


def test_added_lines_are_followed_and_machines_that_do_not_answer_named(cluster, monkeypatch):
    cluster.prints("a", f"{AT}/i-1/primary", "one")
    cluster.prints("b", f"{AT}/i-2/primary", "two")

    def lose():
        cluster.missing = {"b"}
        cluster.prints("a", f"{AT}/i-1/primary", "three")
        cluster.prints("b", f"{AT}/i-2/primary", "four")

    def be_away():
        cluster.is_away = True

    def find():
        cluster.is_away = False
        cluster.missing = set()
        cluster.prints("b", f"{AT}/i-3/primary", "five")

    steps = iter([lose, be_away, find])
    monkeypatch.setattr(cluster_logs, "time", SimpleNamespace(sleep=lambda _: next(steps)()))
    lines = cluster.read(lines=1, follow=True)
    assert [next(lines).split(" ", 1)[1] for _ in range(4)] == [
        "i-2 | two",
        "i-1 | three",
        "i-2 | four",
        "i-3 | five",
    ]
    assert cluster.warnings == [
        "Without the logs on machines that do not answer: b.",
        "The server does not answer.",
        "All machines of the cluster answer.",
    ]


def test_a_name_means_the_same_on_all_machines(cluster):
    """A job on one, and an endpoint of its name on the other."""
    cluster.prints("a", "training-jobs/house/algo-1", "trains")
    cluster.prints("b", f"{AT}/i-1/primary", "serves")
    assert cluster.texts() == ["serves"]
    assert cluster.texts(job=True) == ["trains"]
    cluster.prints("b", "transform-jobs/other/i-1", "transforms")
    assert cluster.texts("other") == ["transforms"]


def test_unknown_names_and_paths_are_refused(cluster):
    cluster.prints("a", f"{AT}/i-1/primary", "one")
    for name in ("nobody", "../endpoints", "..", "."):
        with pytest.raises(NotFound, match="on the machines of the cluster that answer"):
            cluster.texts(name)


def test_a_server_by_itself_reads_its_files(short_path: Path):
    home = prepare_home(short_path / "home")
    assert not is_in_cluster(home)
    home.cluster.mkdir()
    home.node_id.write_text("a")  # It stays when a machine has left its cluster.
    home.node_addresses.write_text("{}")
    assert not is_in_cluster(home), "no server runs, so nobody can be asked"
    home.address.write_text("http://127.0.0.1:1")
    assert is_in_cluster(home)
    home.node_addresses.unlink()
    assert not is_in_cluster(home), "a machine of its own, whatever it was before"
