"""Shell lines with whatever a secret contains."""

import shlex

from sagehen.app.commands.exports import export_lines
from sagehen.base.credentials import Credentials


def test_a_shell_reads_back_what_was_meant() -> None:
    keys = Credentials("AKSH", "it's $HOME; `x`")
    address, secrets = export_lines("http://127.0.0.1:9000", keys, "eu-west-1")
    assert shlex.split(address)[1:] == [
        "AWS_ENDPOINT_URL=http://127.0.0.1:9000",
        "AWS_REGION=eu-west-1",
        "AWS_DEFAULT_REGION=eu-west-1",
    ]
    assert shlex.split(secrets)[1:] == [
        "AWS_ACCESS_KEY_ID=AKSH",
        "AWS_SECRET_ACCESS_KEY=it's $HOME; `x`",
    ]
