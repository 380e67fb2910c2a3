"""Scripts written for AWS's images import and use what stands in for AWS's modules."""

import os
import socket
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
    answer = worker.Response(encoders.encode(rows, "text/csv"), accept="text/csv")
    assert answer.mimetype == "text/csv" and answer.status_code == 200
    assert encoders.csv_to_numpy(answer.get_data()).tolist() == rows.tolist()
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

    with open("from_1.libsvm", "w") as file:
        file.write("1 1:0.5 2:2\\n0 1:1.5 2:4\\n")
    own = get_dmatrix("from_1.libsvm", "libsvm")
    theirs = xgboost.DMatrix("from_1.libsvm?format=libsvm")
    asked = encoder.libsvm_to_dmatrix("1:0.5 2:2")
    assert own.num_col() == theirs.num_col() == asked.num_col() == 3
    booster = xgboost.train({"nthread": 1, "min_child_weight": 0}, theirs, 2)
    scores = booster.predict(theirs).tolist()
    assert booster.predict(asked).tolist() == booster.predict(own).tolist()[:1] == scores[:1]
    assert scores[0] != scores[1]
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

ONE_OF_TWO_HOSTS = """
    import sys
    import numpy, xgboost
    from sagemaker_containers import entry_point
    from sagemaker_xgboost_container import distributed

    host, port, has_data = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "data"
    hosts = ["127.0.0.1", "localhost"]
    entry_point._wait_hostname_resolution(hosts)
    rows = numpy.arange(8.0).reshape(4, 2) + 100 * hosts.index(host)
    data = xgboost.DMatrix(rows, label=rows[:, 0])

    def train(data, is_master):
        booster = xgboost.train({"nthread": 1}, data, 2)
        print("result", is_master, xgboost.collective.get_world_size(), booster.predict(data)[0])

    distributed.rabit_run(
        exec_fun=train, args={"data": data}, include_in_training=has_data, hosts=hosts,
        current_host=host, first_port=port, update_rabit_args=True)
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


@pytest.mark.parametrize(
    ("second_has", "expected"),
    [("data", [["True", "2"], ["False", "2"]]), ("nothing", [["True", "1"], []])],
)
def test_two_hosts_train_one_model(python, tmp_path, second_has, expected):
    port = free_ports()
    arguments = (("127.0.0.1", "data"), ("localhost", second_has))
    processes = [
        subprocess.Popen(
            [python, "-c", textwrap.dedent(ONE_OF_TWO_HOSTS), host, str(port), has],
            env=os.environ | {"PYTHONPATH": str(FOLDER)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for host, has in arguments
    ]
    outputs = [results(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [output[:2] for output in outputs] == expected
    if second_has == "data":
        assert outputs[0][2] != outputs[1][2]  # their rows differ, and the model is one


def results(output):
    """Without what XGBoost prints of itself."""
    lines = [line.split() for line in output.splitlines()]
    return [word for line in lines if line[:1] == ["result"] for word in line[1:]]


def free_ports():
    """The first of two ports that are free, side by side."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


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
