"""A server that is not root, which may use the engine: its containers run as root all the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deploy import Deployer
from support.docker.endpoints import ImageEndpoints
from support.docker.jobs import ImageJobs
from support.server import Server, eventually
from support.unprivileged import unprivileged_server


@pytest.fixture(scope="module")
def server(engine: Any) -> Iterator[Server]:
    socket = Path(engine.host.removeprefix("unix://"))
    socket.parent.chmod(0o711)
    socket.chmod(0o666)
    with unprivileged_server(launcher="docker", docker_host=engine.host) as server:
        yield server


def test_what_root_has_left_is_removed_with_the_instance(
    server: Server, images: ImageEndpoints
) -> None:
    container = images.container("mine:1", Environment={"LEAVE": "yes"})
    described = images.create("leaves", container)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert images.invoke("leaves", b"4") == "8.0"
    instances = server.home / "instances"
    (left,) = instances.rglob("private")
    assert left.owner() == "root"
    images.delete("leaves")
    eventually(lambda: not any(instances.iterdir()))


def test_what_root_keeps_to_itself_is_in_the_jobs_output(server: Server, deploy: Deployer) -> None:
    jobs = ImageJobs(deploy)
    jobs.start("private", private="weights")
    described = jobs.ended("private")
    assert described["TrainingJobStatus"] == "Completed", described
    assert jobs.output("private", "private/file") == b"weights"
    eventually(lambda: not any((server.home / "jobs").iterdir()))
