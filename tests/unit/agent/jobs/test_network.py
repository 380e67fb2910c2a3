"""The hosts of a job find each other by name, and are in nobody's way."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from sagehen.agent.jobs import network
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.network import JobNetwork, claim_network
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.launchers.walls import Wall
from sagehen.base.home import Home
from sagehen.frame.job_specs import JobOutcome
from support.jobs import JobsUnderTest, MakeSpec
from support.mounts import may_mount

PORT_RANGES = 2_500
"""of ports below those that the kernel gives to clients"""

# Each host listens on one and the same port, at its own name; the second is heard by the first.
MEET = """
import json, os, socket, time
PORT, folder = 7766, os.environ["SAGEMAKER_BASE_DIR"]
own = json.load(open(folder + "/input/config/resourceconfig.json"))["current_host"]
first = os.environ["MASTER_ADDR"]

def connect():
    for _ in range(6000):
        try:
            return socket.create_connection((first, PORT), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.01)  # It has not come so far.

with socket.create_server((own, PORT)) as server:
    if own == first:
        server.settimeout(60)
        said = server.accept()[0].makefile().read()
        print(said, "at", server.getsockname()[0], os.environ["MASTER_PORT"])
    else:
        with connect() as connection:
            connection.sendall(b"this is " + own.encode())
"""


def number(one: JobNetwork) -> int:
    return int(one.address(1).split(".")[2])


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Of networks that no job of another test has, which may run at the same time.

    Nor may it have their ports: who claims a network listens on its port for a moment.
    """
    monkeypatch.setattr(network, "_CLAIM", f"test-{os.getpid()}")
    monkeypatch.setattr(network, "FIRST_PORT", 10_500 + os.getpid() % PORT_RANGES * 8)
    with ExitStack() as stack:
        yield stack


def test_each_job_has_a_network_until_it_ends(claimed: ExitStack) -> None:
    first, second = (claimed.enter_context(closing(claim_network())) for _ in range(2))
    assert number(first) < number(second)
    assert second.master_port - first.master_port == number(second) - number(first)
    assert first.address(2) == f"127.77.{number(first)}.2"
    first.close()
    first.close()
    assert number(claimed.enter_context(closing(claim_network()))) <= number(first)


def test_a_port_that_somebody_listens_on_is_no_jobs(claimed: ExitStack) -> None:
    first = claimed.enter_context(closing(claim_network()))
    taken = claimed.enter_context(socket.create_server(("", first.master_port)))
    first.close()
    second = claimed.enter_context(closing(claim_network()))
    assert second.master_port != taken.getsockname()[1]


def test_where_none_is_left_hosts_share_the_machines(claimed: ExitStack, monkeypatch) -> None:
    monkeypatch.setattr(network, "MAX_NETWORKS", 0)
    shared = claim_network()
    assert (shared.address(1), shared.address(2), shared.master_port) == (
        "127.0.0.1",
        "127.0.0.1",
        network.FIRST_PORT,
    )


def test_the_machines_own_names_are_kept(tmp_path: Path, monkeypatch) -> None:
    machines = tmp_path / "hosts"
    machines.write_bytes(b"10.0.0.1 algo-1 \xff\n")
    monkeypatch.setattr(network, "_ETC_HOSTS", machines)
    lines = JobNetwork(3).hosts_file(["algo-1", "algo-2"]).splitlines()
    assert lines[:2] == ["127.77.3.1\talgo-1", "127.77.3.2\talgo-2"]
    assert lines[2].startswith("10.0.0.1 algo-1")
    machines.unlink()
    assert len(JobNetwork(3).hosts_file(["algo-1"]).splitlines()) == 1


class TestJobs:
    @pytest.fixture
    def around(self, around: JobContext, tmp_path: Path) -> JobContext:
        settings = around.settings.model_copy(update={"shared_folders": (str(tmp_path),)})
        return replace(around, settings=settings, launcher=ProcessLauncher(walls=frozenset(Wall)))

    @may_mount
    async def test_their_hosts_meet_at_their_names_and_jobs_do_not_mix(
        self, jobs: JobsUnderTest, make_spec: MakeSpec, home: Home, tmp_path: Path
    ) -> None:
        program = tmp_path / "meet.py"
        program.write_text(MEET)
        names = ("one", "two")
        for name in names:
            script = f"exec python {program}"
            spec = make_spec(script, attempt_id=name, job_name=name, instance_count=2)
            jobs.jobs.put(spec)
        ended = await asyncio.gather(*(jobs.ends(name) for name in names))
        logs = [(home.logs / "training-jobs" / name / "algo-1.log").read_text() for name in names]
        assert [one.outcome for one in ended] == [JobOutcome.COMPLETED] * 2, logs
        heard = [log.split() for log in logs]
        assert [said[:4] for said in heard] == [["this", "is", "algo-2", "at"]] * 2
        assert len({said[4] for said in heard}) == len({said[5] for said in heard}) == 2


async def test_where_there_are_no_names_the_first_hosts_address_is_told(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    await jobs.run(make_spec("echo at $MASTER_ADDR"))
    assert "at 127.0.0.1\n" in (home.logs / "training-jobs/count/algo-1.log").read_text()
