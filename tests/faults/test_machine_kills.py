"""kill -9 of everything on a random node of a cluster of three, while it does everything.

`MACHINE_KILL_ROUNDS=50 pytest tests/faults/test_machine_kills.py` does it as often as it takes to
believe it, and writes what it measures to the file that MACHINE_KILL_REPORT names.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from support.deploy import Deployer
from support.killed_machines import running_machines
from support.machine_jobs import JobEvents, TrainingJobs, TransformJobs
from support.machine_report import Round, report
from support.machine_traffic import Traffic, deploy_echo, deploy_many, twice_begun, unexplained
from support.server import eventually
from support.sure_endpoint import (
    Clients,
    Notices,
    assert_nothing_more,
    begin_sure_endpoint,
    is_drained,
    objects,
    wrongs,
)
from support.transform_kills import outputs, prepare, start, status

pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROUNDS = int(os.environ.get("MACHINE_KILL_ROUNDS", "0"))
SEED = int(os.environ.get("MACHINE_KILL_SEED", "0")) or random.randrange(1, 2**32)
LONGEST_DOWN_SECONDS = 10.0
"""a machine may be back before anybody has noticed, or long after"""
BACK_SECONDS = float(os.environ.get("MACHINE_KILL_BACK_SECONDS", "60"))
"""5 on a machine that has nothing else to do; a busy one takes as long as it takes"""
TIMEOUT_SECONDS = 400
LARGE = "".join(f"{number},a line of a large object\n" for number in range(100_000))
INPUTS = {"large.csv": LARGE} | {f"{n:03}.csv": f"a {n}\nb {n}\n" for n in range(200)}


@pytest.fixture(scope="module")
def machines(make_server, server):
    settings = {"max_job_restarts": "1000", "max_async_redeliveries": "100"}
    with running_machines(make_server, server, **settings) as machines:
        yield machines


@pytest.mark.skipif(not ROUNDS, reason="costs minutes: set MACHINE_KILL_ROUNDS")
@pytest.mark.timeout(max(1800, ROUNDS * 120))
def test_a_cluster_outlives_each_of_its_machines(machines, tmp_path):
    print("seed:", SEED)  # noqa: T201
    chance = random.Random(SEED)
    deployer = Deployer(machines)
    begun = tmp_path / "begun"
    begun.touch()
    deploy_echo(deployer, "echo", begun, 3)
    deploy_many(deployer, "many", begun, 3)
    queue = begin_sure_endpoint(deployer, instances=3)
    events = JobEvents(deployer)
    prepare(deployer, INPUTS)
    start(deployer, "undisturbed")
    eventually(lambda: status(deployer, "undisturbed") == "Completed", TIMEOUT_SECONDS)
    expected = outputs(deployer, "undisturbed")
    assert expected == {f"{key}.out": text.upper().encode() for key, text in INPUTS.items()}

    rounds: list[Round] = []
    traffic = Traffic(machines, "echo", "many", begun)
    transforms, trainings = TransformJobs(machines, expected), TrainingJobs(machines, tmp_path)
    with Notices(machines, queue) as notices:
        with traffic, Clients(machines) as clients, transforms, trainings:
            told = clients.told
            clients.ahead = lambda: len(told.accepted) - len(notices.ids)
            for _ in range(ROUNDS):
                enough = len(told.accepted) + 20
                eventually(lambda enough=enough: len(told.accepted) >= enough, TIMEOUT_SECONDS)
                rounds.append(strike(machines, traffic, chance))
                print(rounds[-1], flush=True)  # noqa: T201
        eventually(lambda: told.accepted.keys() <= notices.ids.keys(), TIMEOUT_SECONDS)
        eventually(lambda: is_drained(machines), TIMEOUT_SECONDS)
        written = objects(machines)
        eventually(lambda: len(notices.ids) >= len(written), TIMEOUT_SECONDS)
    jobs = ["undisturbed", *transforms.names, *trainings.names]
    ends = events.ends(lambda ends: ends.keys() >= set(jobs))

    wrong = [*wrongs(told, notices, written)]
    text = report(SEED, rounds, traffic, told, wrong, transforms, trainings, ends)
    print(text)  # noqa: T201
    if "MACHINE_KILL_REPORT" in os.environ:
        Path(os.environ["MACHINE_KILL_REPORT"]).write_text(text)
    kills = [each.kill for each in rounds]
    assert not wrong, (SEED, wrong[:20])
    assert_nothing_more(told, notices, written)
    assert not transforms.wrong
    assert not trainings.wrong
    assert ends == Counter(jobs)
    assert not list(unexplained(traffic, kills))
    assert not twice_begun(traffic)
    assert max(each.back_seconds for each in rounds) <= BACK_SECONDS


def choose(machines, chance):
    """Any node; rather one that has instances, which stay where they are when a node comes back."""
    eventually(lambda: bool(machines.status()), TIMEOUT_SECONDS)
    nodes = machines.status()
    weights = [1 + len(nodes.get(each.node_id, {}).get("instances", ())) for each in machines.all]
    return chance.choices(machines.all, weights)[0]


def strike(machines, traffic, chance) -> Round:
    """Kills a node, and waits until traffic is back and the node, too."""
    machine = choose(machines, chance)
    kill = machines.kill(machine)
    down = chance.uniform(0, LONGEST_DOWN_SECONDS)
    eventually(lambda: time.monotonic() - kill.ended >= down)
    machines.start(machine)
    eventually(machines.are_whole, TIMEOUT_SECONDS)
    whole = time.monotonic() - kill.began
    eventually(lambda: traffic.back_after(kill) is not None, TIMEOUT_SECONDS)
    errors = [call for call in traffic.errors() if call.ended > kill.began]
    return Round(kill, down, whole, traffic.back_after(kill), errors)
