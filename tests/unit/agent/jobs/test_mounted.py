"""Jobs whose containers see their folder at /opt/ml."""

from dataclasses import replace

import pytest

from sagehen.agent.jobs.surroundings import JobSurroundings
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.domain.jobs import CheckpointSpec, Outcome
from sagehen.home import Home
from support.jobs import JobsUnderTest, MakeSpec
from support.mounts import may_mount

# As the SageMaker SDK 3 starts its jobs.
SCRIPT = """
set -e
/bin/bash -c 'cat /opt/ml/input/config/resourceconfig.json > /dev/null'
test "$SAGEMAKER_BASE_DIR" = /opt/ml
test "$SAGEMAKER_SUBMIT_DIRECTORY" = "$PWD"
test -d /opt/ml/checkpoints/deep
echo answer > /opt/ml/output/data/answer
pip --version > /dev/null
python -c 'import msgspec, sys; assert sys.prefix.endswith("/algo-1/python"), sys.prefix'
"""


@pytest.fixture
def around(around: JobSurroundings) -> JobSurroundings:
    return replace(around, launcher=ProcessLauncher(mounts=True))


@may_mount
async def test_their_variables_say_so_and_what_they_write_there_is_kept(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    checkpoint = CheckpointSpec(
        s3_uri="s3://bucket/checkpoints", local_path="/opt/ml/checkpoints/deep"
    )
    report = await jobs.run(make_spec(SCRIPT, checkpoint=checkpoint))
    log = home.logs / "training-jobs" / "count" / "algo-1.log"
    assert report.outcome is Outcome.COMPLETED, log.read_text()
    assert report.artifacts == ("output.tar.gz",)


@may_mount
async def test_why_one_failed_is_read_where_it_wrote_it(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec("echo no luck > /opt/ml/output/failure; exit 3"))
    assert report.failure_reason == "AlgorithmError: no luck, exit code: 3"
