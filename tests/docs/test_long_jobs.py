"""The quick start of the guide to long jobs does what it says, as it stands there."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from sagehen.services.inference_service.notices import notice_of
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.sagemaker.job_tables import JobStatus
from support.server import Server, eventually

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "long-jobs.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_quick_start_runs(make_server: Callable[..., Server], tmp_path: Path) -> None:
    (program,) = blocks("python")
    settings, _ = blocks("toml")
    ask, look, fetch = blocks("sh")
    (tmp_path / "run.py").write_text(program)
    config = tmp_path / "sagehen.toml"
    config.write_text(settings.replace("/srv/model-a/run.py", str(tmp_path / "run.py")))
    # The program is in a folder that containers have of their own.
    server = make_server(config=str(config), shared_folders=str(tmp_path))
    tools = Path(sys.executable).parent
    environment = {
        **server.env,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SAGEHEN_HOME": str(server.home),
        "SAGEHEN_CONFIG": str(config),
    }

    def run(script: str) -> str:
        finished = subprocess.run(
            ["sh", "-ec", script],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    printed = run(ask + 'printf "\\n$KEY"')
    answer, environment["KEY"] = printed.rsplit("\n", 1)
    shown = blocks("json")[0].strip()
    name = r"model-a-job-[0-9-]{19}-[a-z0-9]{6}"
    assert re.sub(name, "NAME", answer.strip()) == re.sub(name, "NAME", shown)

    def newest() -> dict[str, str]:
        return dict(json.loads(run(look))["jobs"][0])

    eventually(lambda: newest()["status"] not in ("InProgress", "Queued"))
    job = newest()
    assert job["status"] == "Completed"
    run(fetch)
    with tarfile.open(tmp_path / job["jobName"] / "output" / "output.tar.gz") as archive:
        found = archive.extractfile("answer.txt")
        assert found is not None
        assert found.read() == b"WORDS TO SHOUT!"


def test_the_notice_that_is_shown_has_the_keys_of_one() -> None:
    job = InferenceJobRecord(
        job_name="j",
        stage="dev",
        type="t",
        state=InferenceState.ENDED,
        topic_arn="arn",
        definition={},
        created_at=0,
        status=JobStatus.COMPLETED,
    )
    told = json.loads(json.loads(notice_of(job, 0).message)["default"])
    assert list(json.loads(blocks("json")[1])) == list(told)
