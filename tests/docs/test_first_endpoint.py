"""The curl of the guide to a first endpoint gets an answer, as it stands there."""

import re
import subprocess
from pathlib import Path

from support.deploy import DOUBLE, Deployer
from support.server import Server

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "first-endpoint.md"


def test_curl_invokes_the_endpoint(server: Server, deploy: Deployer) -> None:
    (command,) = re.findall(r"^    curl .*?\n\n", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    # Another name than the guide's: benchmarks make a model `house` on the server that files share.
    command, replaced = re.subn("/house/", "/first-endpoint/", command)
    assert replaced == 1
    assert deploy.endpoint("first-endpoint", DOUBLE)["EndpointStatus"] == "InService"
    answer = subprocess.run(
        ["sh", "-ec", command], env=server.env, capture_output=True, text=True, check=False
    )
    assert answer.stdout == "[3988.0, 6376.0, 10.0, 3.0, 3.24, 6.0]", answer.stderr
