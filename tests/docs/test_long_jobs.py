"""The notice that the guide to long jobs shows is one."""

import json
import re
from pathlib import Path

from sagehen.services.inference_service.notices import notice_of
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.sagemaker.job_tables import JobStatus

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "long-jobs.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


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
