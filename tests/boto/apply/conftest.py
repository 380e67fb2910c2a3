"""What the tests of templates have: a stack each, and clients that are made once."""

import functools

import pytest

import sagehen.apply.run
from sagehen.apply.client import connect
from support.stacks import Stack


@pytest.fixture(scope="package", autouse=True)
def connected_once():
    """To make clients takes longer than most runs: those of the same home share them."""
    with pytest.MonkeyPatch.context() as patch:
        cached = functools.cache(connect)
        patch.setattr(sagehen.apply.run, "connect", cached)
        yield


@pytest.fixture
def stack(server, tmp_path):
    stack = Stack(server, tmp_path)
    yield stack
    stack.run("delete")


@pytest.fixture(scope="module")
def clients(server):
    return {name: server.client(name) for name in ("sagemaker", "s3", "sns", "sqs")}
