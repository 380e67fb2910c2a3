"""Scripts written for AWS's images import and use what stands in for AWS's modules."""

import os
import subprocess
import sys
import textwrap

import pytest

from sagehen.base.own_python import make_own_python, own_python
from sagehen.containers.aws_modules_path import FOLDER

SKLEARN_FEATURIZER = """
    import io, os
    from sagemaker_containers.beta.framework import (
        content_types, encoders, env, modules, transformer, worker)
"""

SKLEARN_PIPELINE = """
    import json, os
    from sagemaker_containers.beta.framework import content_types, encoders, env, worker

    os.environ.update(SM_CHANNEL_TRAIN="/opt/ml/input/data/train", SM_HPS='{"depth": 3}')
    rows = encoders.decode("1,2\\n3,4\\n", content_types.CSV)
    assert rows.tolist() == [[1, 2], [3, 4]], rows
    body, media_type = worker.Response(encoders.encode(rows, "text/csv"), accept="text/csv")
    assert media_type == "text/csv" and encoders.csv_to_numpy(body).tolist() == rows.tolist()
    assert worker.Response("{}", mimetype="application/json").mimetype == "application/json"
    training = env.TrainingEnv()
    assert training.channel_input_dirs == {"train": "/opt/ml/input/data/train"}
    assert training.hyperparameters == {"depth": 3}
    try:
        encoders.encode(rows, "image/png")
    except Exception as error:
        assert "not supported" in str(error)
    else:
        raise AssertionError
"""

XGBOOST_SCRIPT_MODE = """
    import xgboost
    from sagemaker_xgboost_container import encoder
    from sagemaker_xgboost_container.data_utils import get_content_type, get_dmatrix

    assert get_content_type("text/csv; charset=utf-8") == "csv"
    with open("a.csv", "w") as file:
        file.write("1,0.5,2\\n0,1.5,4\\n")
    with open("b.libsvm", "w") as file:
        file.write("1 0:0.5 1:2\\n0 0:1.5 1:4\\n")
    of_csv, of_libsvm = get_dmatrix("a.csv", "csv"), get_dmatrix("b.libsvm", "libsvm")
    assert of_csv.get_label().tolist() == of_libsvm.get_label().tolist() == [1, 0]
    weighted = get_dmatrix("a.csv", "csv", csv_weights=1)
    assert weighted.get_weight().tolist() == [0.5, 1.5] and weighted.num_col() == 1
    booster = xgboost.train({"nthread": 1}, of_csv, 2)
    from_csv = booster.predict(encoder.csv_to_dmatrix("0.5,2"))
    from_libsvm = booster.predict(encoder.decode(b"0:0.5 1:2", "text/libsvm"))
    assert from_csv.tolist() == booster.predict(of_csv).tolist()[:1] == from_libsvm.tolist()
    assert get_dmatrix("none.csv", "csv") is None
    try:
        get_content_type("application/x-parquet")
    except ValueError as error:
        assert "is not an accepted ContentType" in str(error)
    else:
        raise AssertionError
"""

INFERENCE_TOOLKIT = """
    from sagemaker_inference import content_types, decoder, default_inference_handler, encoder
    from sagemaker_inference import errors, utils

    class Handler(default_inference_handler.DefaultInferenceHandler):
        pass

    rows = Handler().default_input_fn("[[1, 2]]", content_types.JSON)
    assert Handler().default_output_fn(rows, "text/csv;q=1, */*")[1] == "text/csv"
    assert encoder.encode([[1, 2]], content_types.CSV).strip() == "1,2"
    assert utils.parse_accept("text/csv;q=1, */*") == ["text/csv", "*/*"]
    assert errors.GenericInferenceToolkitError(404).phrase == "Not Found"
    try:
        decoder.decode(b"", "image/png")
    except errors.UnsupportedFormatError as error:
        assert "image/png" in str(error)
    else:
        raise AssertionError
"""

HUGGING_FACE = """
    from sagemaker_huggingface_inference_toolkit import content_types, decoder_encoder

    data = decoder_encoder.decode('{"inputs": "hello"}', content_types.JSON)
    assert data["inputs"] == "hello"
    assert decoder_encoder.encode([{"label": "a"}], content_types.JSON) == b'[{"label":"a"}]'
"""


@pytest.fixture
def python(tmp_path):
    """A container's own Python, as training scripts have it."""
    make_own_python(tmp_path / "python", last=[FOLDER])
    return own_python(tmp_path / "python")


def run(python, folder, code, **variables):
    return subprocess.run(
        [python, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def run_with_stand_ins(python, folder, code):
    """Also where the real packages are installed."""
    return run(python, folder, code, PYTHONPATH=str(FOLDER))


@pytest.mark.parametrize(
    "code",
    [SKLEARN_PIPELINE, XGBOOST_SCRIPT_MODE, INFERENCE_TOOLKIT, HUGGING_FACE],
    ids=["sklearn", "xgboost", "inference", "huggingface"],
)
def test_a_script_runs(python, tmp_path, code):
    ended = run_with_stand_ins(python, tmp_path, code)
    assert ended.returncode == 0, ended.stderr


def test_the_import_lines_of_the_scikit_learn_pipeline_example(python, tmp_path):
    ended = run_with_stand_ins(python, tmp_path, SKLEARN_FEATURIZER)
    assert ended.returncode == 0, ended.stderr


def test_an_installed_package_comes_before_its_stand_in(python, tmp_path):
    site = next((tmp_path / "python").glob("lib/python*/site-packages"))
    (site / "sagemaker_inference.py").write_text("real = True\n")
    ended = run(python, tmp_path, "import sagemaker_inference; assert sagemaker_inference.real")
    assert ended.returncode == 0, ended.stderr


def test_the_model_server_itself_does_not_see_them():
    assert FOLDER not in sys.path
