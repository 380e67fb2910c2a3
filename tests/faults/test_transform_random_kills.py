"""kill -9 of anything, at any time, during one transform job.

`TRANSFORM_KILLS=100 pytest tests/faults/test_transform_random_kills.py` does it as often as it
takes to believe it; a run of all tests kills a few.
"""

import contextlib
import json
import os
import random
import signal
import time

import pytest

from support.server import eventually
from support.transform_kills import finished, is_clean, outputs, pid_of, prepare, start, status

KILLS = int(os.environ.get("TRANSFORM_KILLS", "3"))
SEED = int(os.environ.get("TRANSFORM_KILL_SEED", "0")) or random.randrange(1, 2**32)
VICTIMS = ("runner", "control", "instance", "agent")
LONGEST_PAUSE_SECONDS = 1.0
"""between two kills: a new instance may or may not be there before the next"""
SMALL = 20 * KILLS
"""so many that two instances are busy for as long as all pauses take"""
OBJECTS = {
    "large.csv": "".join(f"{number},line of a large object\n" for number in range(300_000)),
    **{f"small/{number:05}.csv": f"row {number} a\nrow {number} b\n" for number in range(SMALL)},
}


@pytest.fixture(scope="module")
def killed(make_server, make_deployer):
    """A server of this module's own, with inputs and a model."""
    deployer = make_deployer(make_server())
    prepare(deployer, OBJECTS)
    return deployer


def kill_any(deployer, choose) -> str | None:
    """Kills one process that is there now; returns what it was."""
    for what in choose.sample(VICTIMS, len(VICTIMS)):
        pid = pid_of(deployer, what)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return what
    return None


def test_outputs_are_those_of_an_undisturbed_run(killed):
    print("seed:", SEED)  # noqa: T201
    choose = random.Random(SEED)
    start(killed, "undisturbed")
    eventually(lambda: status(killed, "undisturbed") == "Completed", 600)
    start(killed, "disturbed")
    # A model that cannot be started at all fails its job.
    eventually(lambda: finished(killed, "disturbed") > 0)
    deaths = []
    while len(deaths) < KILLS:
        time.sleep(choose.uniform(0, LONGEST_PAUSE_SECONDS))  # a kill may come at any time
        if status(killed, "disturbed") not in (None, "InProgress"):
            break
        deaths += filter(None, [kill_any(killed, choose)])
    eventually(lambda: status(killed, "disturbed") in ("Completed", "Failed"), 600)
    described = killed.sagemaker.describe_transform_job(TransformJobName="disturbed")
    assert described["TransformJobStatus"] == "Completed", (described, SEED, deaths)
    assert len(deaths) == KILLS, (SEED, deaths)

    undisturbed = outputs(killed, "undisturbed")
    assert undisturbed.keys() == {f"{key}.out" for key in OBJECTS}
    assert outputs(killed, "disturbed") == undisturbed, (SEED, deaths)
    assert undisturbed["large.csv.out"] == OBJECTS["large.csv"].upper().encode()
    assert "Uploads" not in killed.s3.list_multipart_uploads(Bucket="kills-out")
    progress = json.loads(killed.server.get("/_sagehen/transform-jobs/disturbed"))
    assert (progress["objects"], progress["objects_known"]) == (SMALL + 1, SMALL + 1)
    assert progress["records"] == 2 * SMALL + 300_000
    eventually(lambda: is_clean(killed, "disturbed"))
