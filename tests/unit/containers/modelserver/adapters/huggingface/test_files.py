"""Where a Hugging Face model is, and its task."""

import json
from pathlib import Path

import pytest

from sagehen.containers.modelserver.adapters.huggingface.files import (
    HuggingFaceError,
    find_task,
    is_text_task,
    model_folder,
)
from sagehen.containers.modelserver.environment import read_environment


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("BertForSequenceClassification", "text-classification"),
        ("TapasForQuestionAnswering", "table-question-answering"),
        ("BertForQuestionAnswering", "question-answering"),
        ("MarianMTModel", "text2text-generation"),
    ],
)
def test_the_architecture_names_the_task(architecture: str, task: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert find_task(tmp_path, read_environment({}).hugging_face) == task


def test_hf_task_goes_first(tmp_path: Path) -> None:
    settings = read_environment({"HF_TASK": "fill-mask"}).hugging_face
    assert find_task(tmp_path, settings) == "fill-mask"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "archive has no config.json"),
        ("[]", "config.json is not a JSON object"),
        ("{", "config.json is not a JSON object"),
        ("{}", "couldn't be inferred from no architecture: set HF_TASK"),
        ('{"architectures": ["BertModel"]}', "couldn't be inferred from BertModel"),
    ],
)
def test_an_unknown_task_says_what_to_set(config: str | None, reason: str, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(HuggingFaceError, match=reason):
        find_task(tmp_path, read_environment({}).hugging_face)


def test_hf_model_id_may_be_a_folder_in_the_container(tmp_path: Path) -> None:
    own = tmp_path / "model"
    assert model_folder(own, read_environment({})) == own
    (tmp_path / "input").mkdir()
    base = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    inside = read_environment({**base, "HF_MODEL_ID": "/opt/ml/input"})
    assert model_folder(own, inside) == tmp_path / "input"
    missing = read_environment({**base, "HF_MODEL_ID": "/opt/ml/none"})
    with pytest.raises(HuggingFaceError, match="HF_MODEL_ID is /opt/ml/none, which is not a"):
        model_folder(own, missing)


def test_only_some_tasks_answer_each_text_alone() -> None:
    assert is_text_task("sentiment-analysis")
    assert is_text_task("feature-extraction")
    assert not is_text_task("text-generation")
