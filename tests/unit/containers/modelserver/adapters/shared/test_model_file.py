"""What is said of archives and model files that cannot be loaded: what is wrong and what to do."""

import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.script.script import misplaced_script

LIGHTGBM_TEXT = b"tree\nversion=v4\nnum_class=1\n"
MODULE_GONE = "import {0}, pickle, sys; pickle.dump({0}.Mine(), open(sys.argv[1], 'wb'))"
CLASS_OF_MAIN = """
import pickle, sys
class Mine:
    def predict(self, rows): return rows
pickle.dump(Mine(), open(sys.argv[1], "wb"))
"""


@pytest.fixture
def said(base_dir, load_as):
    """`said("sklearn", {path: content})`: why that archive does not load."""

    def load(adapter: str, files: dict[str, bytes]) -> str:
        for name, content in files.items():
            path = base_dir / "model" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        with pytest.raises(SagehenError) as refused:
            load_as(adapter)
        return str(refused.value)

    return load


def saved_by(script: str, folder: Path) -> bytes:
    """What that program pickles, which is another than this."""
    path = folder / "saved"
    subprocess.run([sys.executable, "-c", script, path], check=True, cwd=folder)
    return path.read_bytes()


class TestAnArchiveOfTheFolder:
    @pytest.mark.parametrize(
        ("adapter", "path", "folder"),
        [
            ("sklearn", "model/model.joblib", "model"),
            ("sklearn", "a/b/model.pkl", "a/b"),
            ("sklearn", "mine/code/inference.py", "mine"),
            ("python", "model/code/inference.py", "model"),
            ("onnx", "export/net.onnx", "export"),
            ("xgboost", "model/xgboost-model", "model"),
            ("pytorch", "model/net.pth", "model"),
        ],
    )
    def test_is_said_to_be_one(self, said, adapter: str, path: str, folder: str) -> None:
        hint = f"It has {path}: pack from inside the folder (tar -C {folder} -czf model.tar.gz .)."
        assert said(adapter, {path: b"x"}).endswith(hint)

    def test_is_none_where_only_the_code_lies_in_a_folder(self, said) -> None:
        assert "pack from inside" not in said("onnx", {"code/net.onnx": b"x", "readme": b""})


class TestAnArchiveWithoutAModelFile:
    """scikit-learn's: the message says what there is, and what to do about that."""

    def test_names_what_it_has(self, said) -> None:
        told = said("sklearn", {"classifier.pkl": b"x", "notes.txt": b"x"})
        assert "has no code/inference.py, and none of model.joblib, model.pkl" in told
        assert "At its top there is classifier.pkl, notes.txt" in told
        assert "name the model as one of these" in told

    def test_is_said_to_be_empty(self, said) -> None:
        assert "At its top there is no file" in said("sklearn", {})

    def test_whose_script_has_no_model_fn_is_not_said_to_have_no_script(
        self, said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", [*sys.path])
        script = b"def predict_fn(data, model):\n    return data\n"
        try:
            told = said("sklearn", {"code/inference.py": script, "classifier.pkl": b"x"})
        finally:
            sys.modules.pop("inference", None)
        assert "has no code/inference.py" not in told
        assert "code/inference.py has no model_fn, and the model's archive none of" in told


class TestAScriptAtTheTop:
    def test_is_where_the_required_one_is_missing(self, said) -> None:
        told = said("python", {"inference.py": b""})
        assert "inference.py at the top of the archive is not run: move it into" in told

    def test_is_no_mistake_beside_one_in_code(self, base_dir, environment) -> None:
        model = base_dir / "model"
        for folder in (model, model / "code"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "inference.py").write_text("")
        assert misplaced_script(model, environment("sklearn")) == ""


class TestPickles:
    def test_one_that_holds_no_model(self, said) -> None:
        told = said("sklearn", {"model.pkl": pickle.dumps({"model": 1})})
        assert told.startswith("model.pkl holds a dict, which has no predict method")

    def test_one_with_a_class_of_the_script_that_saved_it(
        self, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # pytest's own has another name where it runs without workers.
        monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        told = said("sklearn", {"model.pkl": saved_by(CLASS_OF_MAIN, tmp_path)})
        assert "Mine was defined in the script that saved the model" in told
        assert "put it into code/inference.py" in told
        assert "from inference import Mine" in told

    def test_one_that_needs_a_module_that_is_not_here(self, said, tmp_path: Path) -> None:
        (tmp_path / "catboost_of_ours.py").write_text("class Mine: pass\n")
        content = saved_by(MODULE_GONE.format("catboost_of_ours"), tmp_path)
        told = said("sklearn", {"model.pkl": content})
        assert "saved with catboost_of_ours, which is not installed here" in told
        assert "code/requirements.txt" in told

    def test_another_mistake_gets_no_such_advice(self, said) -> None:
        told = said("sklearn", {"model.pkl": b"no pickle"})
        assert "cannot be loaded" in told
        assert "requirements" not in told


def test_what_the_advice_says_works(
    base_dir, load_as, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class in code/inference.py, imported from there where the model is saved."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = base_dir / "model" / "code"
    code.mkdir(parents=True)
    script = "class Mine:\n    def predict(self, rows):\n        return rows\n"
    for folder in (code, tmp_path):
        (folder / "inference.py").write_text(script)
    content = saved_by(MODULE_GONE.format("inference"), tmp_path)
    (base_dir / "model" / "model.pkl").write_bytes(content)
    try:
        assert load_as("sklearn")
    finally:
        sys.modules.pop("inference", None)


def test_a_lightgbm_model_is_named_where_xgboost_s_is_wanted(said) -> None:
    assert "is a LightGBM model" in said("xgboost", {"xgboost-model": LIGHTGBM_TEXT})


def test_the_path_in_the_home_is_not_told(said, base_dir) -> None:
    told = said("onnx", {"a.onnx": b"no model"})
    assert "Model a.onnx cannot be loaded" in told
    assert str(base_dir) not in told


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_weights_alone_are_named_as_such(said, base_dir) -> None:
    import torch

    (base_dir / "model").mkdir(exist_ok=True)
    torch.save(torch.nn.Linear(2, 1).state_dict(), base_dir / "model" / "model.pth")
    told = said("pytorch", {})
    assert "The file holds a state_dict, which is weights without a model. Write a model_fn" in told
    assert "load_state_dict" in told
