"""The AWS CLI, started once."""

from collections.abc import Iterator

import pytest

from support.aws_cli import AwsCli, aws_cli
from support.server import Server


@pytest.fixture(scope="session")
def cli(shared_server: Server) -> Iterator[AwsCli]:
    """`cli("s3 ls", …)` runs `aws s3 ls …`; gives what it prints."""
    with aws_cli(shared_server) as cli:
        yield cli
