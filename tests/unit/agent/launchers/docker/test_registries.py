"""Where images are found."""

import pytest

from sagehen.agent.launchers.docker.registries import find_image_name, is_ecr, pull_failure

ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("uri", "registries", "expected"),
    [
        (f"{ECR}/vllm:1", {}, f"{ECR}/vllm:1"),
        (f"{ECR}/vllm:1", {ECR: "registry.local:5000"}, "registry.local:5000/vllm:1"),
        (f"{ECR}/team/a:1", {ECR: "x", f"{ECR}/team": "y/z/"}, "y/z/a:1"),
        (f"{ECR}/teams/a:1", {ECR: "x", f"{ECR}/team": "y"}, "x/teams/a:1"),
        (f"{ECR}/a@sha256:00", {ECR: ""}, "a@sha256:00"),
        (f"{ECR}/a:1", {f"{ECR}/a": "b"}, "b:1"),
        (f"{ECR}/a:1", {f"{ECR}/a:1": "b:2"}, "b:2"),
        (f"{ECR}/a:1", {"*.dkr.ecr.*.amazonaws.com": ""}, "a:1"),
        (f"{ECR}/a:1", {"*.dkr.ecr.*.amazonaws.com": "p", ECR: "l"}, "l/a:1"),
        ("python:3.11", {"*": "x"}, "python:3.11"),
    ],
)
def test_the_longest_beginning_counts(uri, registries, expected) -> None:
    assert find_image_name(uri, registries) == expected


def test_ecr_is_known_by_its_name() -> None:
    assert is_ecr(f"{ECR}/a:1")
    assert is_ecr("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/a")
    assert not is_ecr("registry.local:5000/a")


def test_the_remedy_is_for_the_registry() -> None:
    assert f"docker login --username AWS --password-stdin {ECR}" in pull_failure(
        f"{ECR}/a:1", f"{ECR}/a:1", "no basic auth credentials"
    )
    mapped = pull_failure(f"{ECR}/a:1", "local/a:1", "denied.")
    assert mapped.startswith(f"the image local/a:1 (for {ECR}/a:1, by docker_registries) could not")
    assert "denied. check the name" in mapped
