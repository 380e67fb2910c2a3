"""Pulls from real registries: images that come, and reasons why they do not."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.docker.endpoints import ImageEndpoints
from support.docker.registry import (
    Registry,
    SilentRegistry,
    running_registry,
    silent_registry,
)
from support.server import Server, eventually

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
HANGING = 9
"""more than the agent has threads for the engine's calls"""


@pytest.fixture(scope="module")
def registry(engine: Any) -> Iterator[Registry]:
    """A registry with one image."""
    with running_registry() as registry:
        registry.push(engine, "mine:1", "mirror/team/mine:latest")
        registry.push(engine, "mine:1", "mirror/team/mine:1.0")
        yield registry


@pytest.fixture(scope="module")
def private_registry(registry: Registry) -> Iterator[Registry]:
    with running_registry(behind_login=registry) as private:
        yield private


@pytest.fixture(scope="module")
def silence() -> Iterator[SilentRegistry]:
    with silent_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the server's user with what `docker login` stores."""
    folder = tmp_path_factory.mktemp("docker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "DOCKER_CONFIG", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(
    engine: Any,
    registry: Registry,
    private_registry: Registry,
    silence: SilentRegistry,
    logins: Path,
    make_server: Callable[..., Server],
) -> Server:
    registries = {
        ECR: f"{registry.address}/mirror",
        f"{ECR}/private": f"{private_registry.address}/mirror/team",
        f"{ECR}/silent": silence.address,
    }
    return make_server(
        launcher="docker", docker_host=engine.host, docker_registries=json.dumps(registries)
    )


def test_an_image_of_ecr_comes_from_the_registry_that_stands_for_it(
    engine: Any, registry: Registry, images: ImageEndpoints
) -> None:
    for name, image in (
        ("by-tag", f"{ECR}/team/mine:1.0"),
        ("by-digest", f"{ECR}/team/mine@{registry.digest}"),
        ("latest", f"{ECR}/team/mine"),
    ):
        described = images.create(name, images.container(image, 3.0))
        assert described["EndpointStatus"] == "InService", described.get("FailureReason")
        assert images.invoke(name, b"4") == "12.0"
        images.delete(name)
    pulled = {tag for image in engine.images.list() for tag in image.tags}
    mirrored = f"{registry.address}/mirror/team/mine"
    assert {tag for tag in pulled if tag.startswith(mirrored)} == {
        f"{mirrored}:1.0",
        f"{mirrored}:latest",
    }


def test_the_registrys_reason_is_the_failure_reason(
    registry: Registry, images: ImageEndpoints
) -> None:
    for name, image in (("no-tag", "team/mine:2"), ("no-repository", "team/other:1")):
        reason = images.fails(name, {"Image": f"{ECR}/{image}"})
        at = f"{registry.address}/mirror/{image}"
        assert "CannotStartContainerError" in reason
        assert f"the image {at} (for {ECR}/{image}, by docker_registries) could not be" in reason
        assert f"manifest for {at} not found: manifest unknown" in reason
        assert "check the name" in reason


def test_an_image_behind_a_login_comes_after_the_user_has_logged_in(
    private_registry: Registry, logins: Path, images: ImageEndpoints
) -> None:
    image = f"{ECR}/private/mine:1.0"
    reason = images.fails("logged-out", images.container(image))
    assert "no basic auth credentials" in reason
    assert "`docker login` to its registry as the server's user" in reason
    private_registry.log_in(logins)
    described = images.create("logged-in", images.container(image))
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert images.invoke("logged-in", b"4") == "8.0"


def test_a_registry_that_never_answers_holds_up_no_other_container(
    silence: SilentRegistry, images: ImageEndpoints
) -> None:
    names = [f"hangs-{number}" for number in range(HANGING)]
    for name in names:
        images.begin(name, {"Image": f"{ECR}/silent/{name}:1"})
    eventually(lambda: silence.asked == set(names))
    described = images.create("local", images.container("mine:1"))
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert {images.deploy.status(name) for name in names} == {"Creating"}


def test_a_registry_that_is_down_is_named(registry: Registry, images: ImageEndpoints) -> None:
    registry.stop()
    reason = images.fails("down", {"Image": f"{ECR}/team/absent:1"})
    assert f"dial tcp {registry.address}: connect: connection refused" in reason
