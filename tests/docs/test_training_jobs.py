"""The code of the guide to training jobs does what it says, as it stands there.

That of the SageMaker SDK is left out: tests/boto/test_training_sdk.py does the same.
"""

import io
import re
import tarfile
from pathlib import Path

import pytest

from support.deploy import pack
from support.server import Server, eventually

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "training-jobs.md"


def test_the_guide_s_code_runs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    script, create = [block for block in blocks if "import sagemaker" not in block]
    s3, sagemaker = server.client("s3"), server.client("sagemaker")
    s3.create_bucket(Bucket="my-bucket")
    s3.put_object(Bucket="my-bucket", Key="data/data.csv", Body=b"1\n2.5\n")
    s3.put_object(Bucket="my-bucket", Key="code/source.tar.gz", Body=pack({"train.py": script}))

    exec(create, {})

    def ended() -> bool:
        status = sagemaker.describe_training_job(TrainingJobName="totals")["TrainingJobStatus"]
        return status not in ("InProgress", "Stopping")

    eventually(ended)
    described = sagemaker.describe_training_job(TrainingJobName="totals")
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    model = s3.get_object(Bucket="my-bucket", Key="out/totals/output/model.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(model["Body"].read())) as archive:
        written = archive.extractfile("total.txt")
        assert written is not None
        assert written.read() == b"7.0"
