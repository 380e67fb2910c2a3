"""Scripts as the SDK's ModelBuilder generates them find what they import and pickle."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from sagehen.containers.aws_modules_path import MODEL_BUILDER_FOLDER
from sagehen.containers.modelserver.adapters.script import model_builder as module
from sagehen.containers.modelserver.adapters.script.model_builder import prepare_model_builder


@pytest.fixture
def process(monkeypatch):
    """What `prepare_model_builder` changes for good."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(shutil, "copytree", shutil.copytree)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "serve.pkl").write_bytes(b"")
    (tmp_path / "code" / "inference.py").write_text("")
    return tmp_path / "code" / "inference.py"


def uses_own_modules(script):
    prepare_model_builder(script)
    return any(isinstance(finder, module._OwnModules) for finder in sys.meta_path)


@pytest.mark.parametrize(
    ("installed", "pickle", "text", "own"),
    [
        (None, b"", "", True),
        (2, b"", "", False),
        (3, b"", "", False),
        (2, b"\x8c\x1asagemaker.core.serializers", "", True),
        (2, b"", "from sagemaker.serve.constants import Framework", True),
        (3, b"\x8c\x1asagemaker.core.serializers", "", False),
        (3, b"\x8c\x1asagemaker.base_serializers", "", True),
        (2, b"\x8c\x1asagemaker.base_serializers", "", False),
    ],
)
def test_the_installed_sdk_is_used_if_it_is_of_the_scripts_version(
    process, script, monkeypatch, installed, pickle, text, own
):
    monkeypatch.setattr(module, "_installed_version", lambda: installed)
    script.with_name("serve.pkl").write_bytes(pickle)
    script.write_text(text)
    assert uses_own_modules(script) is own


def test_other_scripts_see_no_stand_in(process, script, monkeypatch):
    monkeypatch.setattr(module, "_installed_version", lambda: None)
    script.with_name("serve.pkl").unlink()
    assert not uses_own_modules(script)


def test_shared_libraries_are_loaded_and_not_copied_into_the_machines(process, script, tmp_path):
    prepare_model_builder(script)
    (tmp_path / "shared_libs").mkdir()
    before = os.stat("/lib").st_mtime_ns
    assert shutil.copytree(tmp_path / "shared_libs", "/lib", dirs_exist_ok=True) == "/lib"
    assert os.stat("/lib").st_mtime_ns == before
    (tmp_path / "shared_libs" / "none.so").write_text("no library")
    with pytest.raises(OSError, match=r"none\.so"):
        shutil.copytree(tmp_path / "shared_libs", "/lib", dirs_exist_ok=True)


def test_other_folders_are_copied(process, script, tmp_path):
    prepare_model_builder(script)
    shutil.copytree(script.parent, tmp_path / "copy")
    assert (tmp_path / "copy" / "inference.py").exists()


def run(code, **variables):
    """In a process that sees only the stand-ins; returns its error output."""
    environ = {**os.environ, **variables, "PYTHONPATH": MODEL_BUILDER_FOLDER}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_bodies_are_read_and_written():
    run("""
        import io, json
        import numpy as np
        from sagemaker.core.deserializers import base as of_3
        from sagemaker import base_deserializers as of_2
        from sagemaker.core.serializers.base import NumpySerializer
        from sagemaker.serve import SchemaBuilder
        from sagemaker.serve.builder.schema_builder import (
            CSVSerializerWrapper, DeserializerWrapper, JSONSerializerWrapper)

        rows = np.array([[1, 2], [3, 4]])
        body = NumpySerializer().serialize(rows)
        assert of_2.NumpyDeserializer is of_3.NumpyDeserializer
        read = DeserializerWrapper(of_2.NumpyDeserializer(), ("application/x-npy",))
        assert read.deserialize(io.BytesIO(body), "text/html").tolist() == rows.tolist()
        assert JSONSerializerWrapper().serialize({"a": rows}) == b'{"a": [[1, 2], [3, 4]]}'
        assert CSVSerializerWrapper().serialize(rows) == b"1,2\\n3,4"
        csv = of_2.NumpyDeserializer().deserialize(io.BytesIO(b"1,2"), "text/csv")
        assert csv.tolist() == [1, 2]
        assert of_2.StringDeserializer().deserialize(io.BytesIO(b"a"), "x") == "a"
        assert of_2.JSONDeserializer().deserialize(io.BytesIO(b"[1]"), "x") == [1]
        try:
            of_2.NumpyDeserializer().deserialize(io.BytesIO(b""), "image/png")
        except ValueError as error:
            assert "image/png" in str(error)
        else:
            raise AssertionError
        try:
            SchemaBuilder(1, 2)
        except NotImplementedError as error:
            assert "requirements.txt" in str(error)
        else:
            raise AssertionError
    """)


@pytest.mark.parametrize("secret", [None, "key"])
def test_the_pickle_is_checked(tmp_path, secret):
    run(
        f"""
        import json, pathlib
        from sagemaker.serve.validations.check_integrity import (
            compute_hash, perform_integrity_check)

        file = pathlib.Path({str(tmp_path)!r}, "metadata.json")
        file.write_text(json.dumps({{"sha256_hash": compute_hash(b"a", {secret!r})}}))
        perform_integrity_check(b"a", file)
        for content in (b"b", None):
            if content is None:
                file.write_text("[]")
            try:
                perform_integrity_check(b"b", file)
            except ValueError:
                continue
            raise AssertionError
        """,
        **({"SAGEMAKER_SERVE_SECRET_KEY": secret} if secret else {}),
    )


def test_frameworks_of_models():
    run("""
        from sagemaker.serve.detector.image_detector import (
            _detect_framework_and_version, _get_model_base)
        from sagemaker.serve.detector.pickler import load_xgboost_from_json
        from sklearn.linear_model import LinearRegression
        import xgboost

        booster = xgboost.train({}, xgboost.DMatrix([[1.0], [2.0]], label=[0, 1]), 1)
        for model, framework in ((LinearRegression(), "sklearn"), (booster, "xgboost")):
            assert _detect_framework_and_version(str(_get_model_base(model)))[0] == framework
        try:
            load_xgboost_from_json("/none", "xgboost.Booster")
        except ValueError as error:
            assert "Unable to instantiate xgboost.Booster" in str(error)
        else:
            raise AssertionError
    """)
