"""Jobs whose containers see their folder at /opt/ml."""

from dataclasses import replace

import pytest

from sagehen.agent.jobs.context import JobContext
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.launchers.walls import Wall
from sagehen.base.home import Home
from sagehen.frame.job_specs import CheckpointSpec, JobOutcome
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
def around(around: JobContext) -> JobContext:
    return replace(around, launcher=ProcessLauncher(walls=frozenset(Wall)))


@may_mount
async def test_their_variables_say_so_and_what_they_write_there_is_kept(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    checkpoint = CheckpointSpec(
        s3_uri="s3://bucket/checkpoints", local_path="/opt/ml/checkpoints/deep"
    )
    report = await jobs.run(make_spec(SCRIPT, checkpoint=checkpoint))
    log = home.logs / "training-jobs" / "count" / "algo-1.log"
    assert report.outcome is JobOutcome.COMPLETED, log.read_text()
    assert report.artifacts == ("output.tar.gz",)


LOOKS = """
for name in credentials.json message-key.pem state.db state.db-wal sagehen.toml objects run; do
    test ! -e "$HOME_OF_SERVER/$name" || echo "sees $name"
done
cat "$HOME_OF_SERVER/own.txt"
echo 1 > "$HOME/own" && echo 2 > /opt/ml/model/weights && echo 3 > "$TMPDIR/t" && echo wrote
"""


@may_mount
async def test_a_container_sees_no_keys_of_the_home_but_the_users_own_files(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    for name in ("message-key.pem", "sagehen.toml", "own.txt"):
        (home.path / name).write_text("words of its own\n")
    environment = {"HOME_OF_SERVER": str(home.path)}
    spec = make_spec(LOOKS, environment=environment)
    report = await jobs.run(spec)
    assert report.artifacts == ("model.tar.gz",)
    log = (home.logs / "training-jobs" / "count" / "algo-1.log").read_text()
    assert log == "words of its own\nwrote\n"


@may_mount
async def test_why_one_failed_is_read_where_it_wrote_it(
    jobs: JobsUnderTest, make_spec: MakeSpec
) -> None:
    report = await jobs.run(make_spec("echo no luck > /opt/ml/output/failure; exit 3"))
    assert report.failure_reason == "AlgorithmError: no luck, exit code: 3"
