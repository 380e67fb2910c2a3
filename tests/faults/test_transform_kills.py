"""kill -9 of whatever works on a transform job: its outputs are those of an undisturbed run."""

import json

import pytest

from support.server import eventually
from support.transform_kills import (
    finished,
    is_clean,
    kill,
    outputs,
    prepare,
    start,
    status,
)

COUNT = 60
SMALL = {f"small/{number:03}.csv": f"row {number} a\nrow {number} b\n" for number in range(COUNT)}
LARGE = "".join(f"{number},line of a large object\n" for number in range(80_000))
OBJECTS = {"large.csv": LARGE, **SMALL}


@pytest.fixture(scope="module")
def killed(make_server, make_deployer):
    """A server of this module's own, with inputs and a model."""
    deployer = make_deployer(make_server())
    prepare(deployer, OBJECTS)
    return deployer


KILLS = ("runner", "control", "instance", "agent", "runner", "control", "agent", "instance")


def test_whatever_is_killed_the_outputs_are_the_same(killed):
    start(killed, "kills")
    for number, what in enumerate(KILLS, 1):
        share = COUNT * number // (len(KILLS) + 2)
        eventually(lambda least=share: finished(killed, "kills") >= least)
        kill(killed, what)
    eventually(lambda: status(killed, "kills") in ("Completed", "Failed"))
    described = killed.sagemaker.describe_transform_job(TransformJobName="kills")
    assert described["TransformJobStatus"] == "Completed", described
    expected = {f"{key}.out": body.upper().encode() for key, body in OBJECTS.items()}
    assert outputs(killed, "kills") == expected
    assert "Uploads" not in killed.s3.list_multipart_uploads(Bucket="kills-out")
    progress = json.loads(killed.server.get("/_sagehen/transform-jobs/kills"))
    assert (progress["objects"], progress["objects_known"]) == (COUNT + 1, COUNT + 1)
    assert progress["records"] == 2 * COUNT + 80_000
    eventually(lambda: is_clean(killed, "kills"))


@pytest.mark.parametrize("what", ["control", "agent"])
def test_a_job_is_stopped_although_who_has_to_stop_it_dies(killed, what):
    name = f"stopped-{what}"
    start(killed, name)
    eventually(lambda: finished(killed, name) > 0)
    killed.sagemaker.stop_transform_job(TransformJobName=name)
    kill(killed, what)
    eventually(lambda: status(killed, name) == "Stopped")
    count = len(outputs(killed, name))
    eventually(lambda: is_clean(killed, name))
    assert len(outputs(killed, name)) == count < COUNT


def test_a_server_that_was_killed_as_a_whole_goes_on_with_the_job(killed):
    start(killed, "restart")
    eventually(lambda: finished(killed, "restart") > COUNT // 4)
    killed.server.kill()
    killed.server.start()
    eventually(lambda: status(killed, "restart") in ("Completed", "Failed"))
    expected = {f"{key}.out": body.upper().encode() for key, body in OBJECTS.items()}
    assert outputs(killed, "restart") == expected
    eventually(lambda: is_clean(killed, "restart"))
