from pathlib import Path

import pytest

from sagehen.errors import SettingError
from sagehen.modelserver.environment import Bind, read_environment


def test_an_empty_environment_gives_sagemakers_defaults():
    found = read_environment({})
    assert found.model_dir == Path("/opt/ml/model")
    assert found.bind == Bind(host="0.0.0.0", port=8080)
    assert found.program == "inference.py"
    assert not found.program_named
    assert not found.multi_model
    assert found.call_queue == 100 * found.workers


@pytest.mark.parametrize(
    ("variables", "bind"),
    [
        ({"SAGEHEN_BIND": "unix:/run/a.sock"}, Bind(path="/run/a.sock")),
        ({"SAGEHEN_BIND": "tcp:127.0.0.1:81"}, Bind(host="127.0.0.1", port=81)),
        ({"SAGEMAKER_BIND_TO_PORT": "9001"}, Bind(port=9001)),
    ],
)
def test_where_it_listens(variables, bind):
    assert read_environment(variables).bind == bind


@pytest.mark.parametrize(
    "variables",
    [
        {"SAGEHEN_BIND": "here"},
        {"SAGEHEN_BIND": "tcp:localhost:http"},
        {"SAGEMAKER_BIND_TO_PORT": "70000"},
        {"MAX_CONTENT_LENGTH": "much"},
        {"SAGEMAKER_MODEL_SERVER_WORKERS": "0"},
    ],
)
def test_a_bad_value_is_named_with_its_variable(variables):
    ((name, value),) = variables.items()
    with pytest.raises(SettingError, match=name) as caught:
        read_environment(variables)
    assert value.rpartition(":")[2] in str(caught.value)


def test_the_xgboost_containers_body_limit_and_its_cap():
    assert read_environment({"SAGEHEN_ADAPTER": "xgboost"}).max_body_bytes == 6291456
    asked = {"SAGEHEN_ADAPTER": "xgboost", "MAX_CONTENT_LENGTH": "99999999"}
    assert read_environment(asked).max_body_bytes == 20 << 20
    assert read_environment({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}).max_body_bytes == 2 << 20


def test_several_models_have_one_worker_each_by_default():
    assert read_environment({"SAGEMAKER_MULTI_MODEL": "true"}).workers == 1


def test_program_and_selected_outputs():
    found = read_environment(
        {"SAGEMAKER_PROGRAM": "serve", "SAGEMAKER_INFERENCE_OUTPUT": "Probability, labels"}
    )
    assert found.program == "serve.py"
    assert found.program_named
    assert found.inference_output == ("probability", "labels")


@pytest.mark.parametrize(("workers", "threads"), [(1, 8), (3, 2), (20, 1)])
def test_the_workers_share_the_cores(monkeypatch, workers, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    given = {"SAGEMAKER_MODEL_SERVER_WORKERS": str(workers), "MKL_NUM_THREADS": "5"}
    shared = read_environment(given).thread_variables
    assert shared["OMP_NUM_THREADS"] == shared["OPENBLAS_NUM_THREADS"] == str(threads)
    assert "MKL_NUM_THREADS" not in shared


def test_seconds_need_not_be_whole():
    assert read_environment({"SAGEMAKER_MODEL_SERVER_TIMEOUT": "2.5"}).timeout_seconds == 2.5
    for bad in ("0", "nan", "inf", "-1", "soon"):
        with pytest.raises(SettingError, match="SAGEMAKER_MODEL_SERVER_TIMEOUT"):
            read_environment({"SAGEMAKER_MODEL_SERVER_TIMEOUT": bad})
