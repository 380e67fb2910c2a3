"""Hints about modules that only AWS's images have."""

import pytest

from sagehen.base.container_exits import hint


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("sagemaker_inference.encoder", "name sagemaker-inference in the requirements.txt"),
        ("sagemaker", "name sagemaker in the requirements.txt"),
        ("sagemaker_sklearn_container", "write the script without it"),
    ],
)
def test_the_hint_says_what_to_do(module: str, advice: str) -> None:
    text = hint(f"ModuleNotFoundError: No module named '{module}'")
    assert advice in text
    assert module.partition(".")[0] in text


@pytest.mark.parametrize(
    "text", ["ModuleNotFoundError: No module named 'numpy'", "KeyError: 'a'", ""]
)
def test_other_errors_have_no_hint(text: str) -> None:
    assert hint(text) == ""
