"""The code of the guide to asynchronous endpoints does what it says, as it stands there.

That of the SageMaker SDK is left out: tests/boto/test_async_sdk.py does the same.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from support.deploy import DOUBLE, Deployer
from support.server import Server, eventually

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "asynchronous.md"


def test_the_guide_s_code_runs(
    server: Server, deploy: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    create, ask, scale = [block for block in blocks if "import sagemaker" not in block]
    deploy.model("reports", DOUBLE)
    deploy.s3.create_bucket(Bucket="reports")
    deploy.s3.put_object(Bucket="reports", Key="inputs/march.csv", Body=b"1,2\n")
    for topic in ("done", "trouble"):
        server.client("sns").create_topic(Name=topic)
    names: dict[str, Any] = {}

    exec(create, names)
    assert deploy.settled("reports")["EndpointStatus"] == "InService"
    exec(ask, names)
    key = names["answer"]["OutputLocation"].removeprefix("s3://reports/")
    eventually(lambda: deploy.s3.list_objects_v2(Bucket="reports", Prefix=key)["KeyCount"] == 1)
    answer = deploy.s3.get_object(Bucket="reports", Key=key)
    assert answer["Body"].read() == b"[2.0, 4.0]"
    exec(scale, names)
    described = deploy.settled("reports")
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 0
