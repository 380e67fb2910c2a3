import importlib.metadata

import pytest

from sagehen.frame.image_versions import (
    INSTALLED,
    MATCH,
    describe_versions,
    find_versions,
    is_unknown_tag,
    resolved_image,
    unknown_tag,
)

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com/"


@pytest.mark.parametrize(
    ("image", "versions"),
    [
        ("sagemaker-scikit-learn:1.2-1", "scikit-learn 1.2.1, Python 3.8"),
        ("sagemaker-scikit-learn:1.2-1-cpu-py3", "scikit-learn 1.2.1, Python 3.8"),
        ("sagemaker-scikit-learn:1.4-2-cpu-py3", "scikit-learn 1.4.2, Python 3.10"),
        ("sagemaker-scikit-learn:1.4-2-py312-cpu-py3", "scikit-learn 1.4.2, Python 3.12"),
        ("sagemaker-xgboost:1.7-1", "xgboost 1.7.4, Python 3.8"),
        ("sagemaker-xgboost:3.0-5@sha256:0", "xgboost 3.0.5, Python 3.10"),
        ("pytorch-inference:2.3.0-cpu-py311-ubuntu20.04-sagemaker", "torch 2.3.0, Python 3.11"),
        ("pytorch-training:2.3-gpu-py311", "torch 2.3.0, Python 3.11"),
        ("tensorflow-inference:2.12-cpu", "tensorflow 2.12.1"),
        (
            "huggingface-pytorch-inference:2.1.0-transformers4.37.0-cpu-py310-ubuntu22.04",
            "torch 2.1.0, transformers 4.37.0, Python 3.10",
        ),
        (
            "huggingface-pytorch-inference:2.1-transformers4.37-cpu-py310",
            "torch 2.1.0, transformers 4.37.0, Python 3.10",
        ),
    ],
)
def test_a_tag_names_versions(image, versions):
    found = find_versions(ECR + image)
    assert found is not None
    assert str(found).startswith(versions)
    assert not is_unknown_tag(ECR + image)


@pytest.mark.parametrize("tag", ["", ":latest", ":9.9-9", ":1.2", ":1.2-11", "@sha256:0"])
def test_unknown_tags(tag):
    image = f"{ECR}sagemaker-scikit-learn{tag}"
    assert find_versions(image) is None
    assert is_unknown_tag(image)
    assert "1.4-2" in unknown_tag(image)


@pytest.mark.parametrize("image", ["sagehen-xgboost:1.7-1", "python", "my-scikit-learn:1.2-1"])
def test_images_that_are_not_of_aws_promise_nothing(image):
    assert find_versions(image) is None
    assert not is_unknown_tag(image)
    assert describe_versions(image, INSTALLED, {}) == (None, False)
    assert resolved_image(image, INSTALLED, {}) == image


@pytest.fixture
def installed(monkeypatch):
    """Sets the installed versions by package."""
    versions = {}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "12", "1"))
    return versions


def test_a_difference_is_described(installed):
    image = ECR + "sagemaker-xgboost:1.7-1"
    installed["xgboost-cpu"] = "3.0.5+local"
    text, differs = describe_versions(image, INSTALLED, {})
    assert differs
    assert text == "xgboost 3.0.5, Python 3.12 in place of xgboost 1.7.4, Python 3.8"
    assert resolved_image(image, INSTALLED, {}) == "sagehen/xgboost:xgboost-3.0.5-python-3.12"
    installed.clear()
    assert "xgboost (not installed)" in describe_versions(image, INSTALLED, {})[0]
    assert resolved_image(image, INSTALLED, {}).endswith("xgboost-missing-python-3.12")


def test_the_same_versions_are_no_difference(installed):
    installed["xgboost"] = "3.2.0"
    image = ECR + "sagemaker-xgboost:3.2-0"
    assert describe_versions(image, INSTALLED, {}) == ("xgboost 3.2.0, Python 3.12", False)


def test_matching_versions():
    image = ECR + "sagemaker-xgboost:1.7-1"
    text, differs = describe_versions(image, MATCH, {})
    assert not differs
    assert text.startswith("xgboost 1.7.4, in an environment of its own")
    assert resolved_image(image, MATCH, {}) == "sagehen/xgboost:xgboost-1.7.4"


def test_a_users_command_brings_its_own_libraries():
    images = {"sagemaker-xgboost": ["serve"]}
    assert describe_versions("sagemaker-xgboost:9", MATCH, images) == (None, False)
    assert resolved_image("sagemaker-xgboost:9", MATCH, images) == "sagemaker-xgboost:9"
