from pathlib import Path

import pytest

from sagehen.base.errors import SettingError
from sagehen.containers.modelserver.environment import Bind, TensorFlowSettings, read_environment


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
        {"SAGEMAKER_CONTAINER_LOG_LEVEL": "loud"},
        {"SAGEMAKER_HANDLER": "/home/model-server/handler.py:handle"},
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
    # A transform job that streams whole objects.
    streams = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}
    assert read_environment(streams).max_body_bytes > 2**60
    assert read_environment({**streams, "SAGEHEN_ADAPTER": "xgboost"}).max_body_bytes == 20 << 20


@pytest.mark.parametrize(
    ("text", "slots"), [("", None), ("1", 1), ("999999", 999_999), ("9" * 30, 999_999)]
)
def test_slots_of_the_users_choice_go_over_the_link_too(text, slots):
    assert read_environment({"SAGEHEN_SLOTS": text}).slots == slots


def test_several_models_have_one_worker_each_by_default():
    assert read_environment({"SAGEMAKER_MULTI_MODEL": "true"}).workers == 1


def test_program_and_selected_outputs():
    found = read_environment(
        {"SAGEMAKER_PROGRAM": "serve", "SAGEMAKER_INFERENCE_OUTPUT": "Probability, labels"}
    )
    assert found.program == "serve.py"
    assert found.program_named
    assert found.inference_output == ("probability", "labels")


@pytest.mark.parametrize(
    ("variables", "workers"),
    [
        ({}, 1),
        ({"SAGEMAKER_GUNICORN_WORKERS": "3"}, 3),
        ({"SAGEMAKER_GUNICORN_WORKERS": "3", "SAGEMAKER_MODEL_SERVER_WORKERS": "2"}, 2),
    ],
)
def test_tensorflow_has_the_workers_of_its_container(variables, workers):
    assert read_environment({"SAGEHEN_ADAPTER": "tensorflow", **variables}).workers == workers


@pytest.mark.parametrize(
    ("variables", "threads", "tensorflow"),
    [
        ({}, 1, TensorFlowSettings()),
        ({"OMP_NUM_THREADS": "4,2"}, 4, TensorFlowSettings("", 4, 4)),
        (
            {"OMP_NUM_THREADS": "4", "SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "2"},
            4,
            TensorFlowSettings("", 2, 4),
        ),
        ({"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "wine"}, 1, TensorFlowSettings("wine")),
    ],
)
def test_what_frameworks_are_told(variables, threads, tensorflow):
    found = read_environment(variables)
    assert (found.threads, found.tensorflow) == (threads, tensorflow)


def test_second_names():
    given = {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "61", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "9"}
    assert read_environment(given).timeout_seconds == 9
    assert read_environment({"SAGEMAKER_NUM_MODEL_WORKERS": "3"}).workers == 3
    both = {"SAGEMAKER_NUM_MODEL_WORKERS": "3", "SAGEMAKER_MODEL_SERVER_WORKERS": "2"}
    assert read_environment(both).workers == 2


@pytest.mark.parametrize(("text", "level"), [("", 20), ("10", 10), ("WARNING", 30), ("error", 40)])
def test_log_level(text, level):
    assert read_environment({"SAGEMAKER_CONTAINER_LOG_LEVEL": text}).log_level == level


def test_the_toolkits_own_handler_is_ours():
    assert read_environment({"SAGEMAKER_HANDLER": "sagemaker_inference.default_handler_service"})


def test_the_names_of_torchserve_and_multi_model_server_count_too():
    found = read_environment(
        {
            "SAGEMAKER_TS_MAX_WORKERS": "3",
            "SAGEMAKER_TS_RESPONSE_TIMEOUT": "7",
            "SAGEMAKER_MODEL_SERVER_TIMEOUT": "61",
            "TS_JOB_QUEUE_SIZE": "9",
            "MMS_MAX_REQUEST_SIZE": "1000",
            "MMS_MAX_RESPONSE_SIZE": "2000",
            "OMP_NUM_THREADS": "2,1",
        }
    )
    assert (found.workers, found.timeout_seconds, found.call_queue) == (3, 7, 9)
    assert (found.batch_queue, found.max_body_bytes, found.threads) == (9, 1000, 2)
    assert found.max_answer_bytes == 2000


def test_the_variables_of_asynchronous_containers():
    """As SageMaker's guide to asynchronous endpoints sets them."""
    pytorch = {
        "TS_MAX_REQUEST_SIZE": "100000000",
        "TS_MAX_RESPONSE_SIZE": "100000000",
        "TS_DEFAULT_RESPONSE_TIMEOUT": "1000",
    }
    found = read_environment(pytorch)
    assert (found.max_body_bytes, found.max_answer_bytes) == (10**8, 10**8)
    assert found.timeout_seconds == 1000
    hugging_face = {
        "MMS_MAX_REQUEST_SIZE": "2000000000",
        "MMS_MAX_RESPONSE_SIZE": "2000000000",
        "MMS_DEFAULT_RESPONSE_TIMEOUT": "900",
    }
    found = read_environment(hugging_face)
    assert (found.max_body_bytes, found.max_answer_bytes) == (2 * 10**9, 2 * 10**9)
    assert found.timeout_seconds == 900
    assert read_environment({}).max_answer_bytes is None


def test_what_the_hugging_face_container_is_told():
    found = read_environment(
        {"HF_TASK": "fill-mask", "HF_MODEL_REVISION": "v2", "HF_TRUST_REMOTE_CODE": "1"}
    ).hugging_face
    assert (found.task, found.revision, found.trust_remote_code) == ("fill-mask", "v2", True)
    assert not read_environment({}).hugging_face.trust_remote_code


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


@pytest.mark.parametrize(
    ("variables", "most_threads"),
    [
        ({"SAGEHEN_ADAPTER": "xgboost"}, 1),
        ({"SAGEHEN_ADAPTER": "xgboost", "SAGEMAKER_BATCH": "true"}, 8),
        ({"SAGEHEN_ADAPTER": "xgboost", "SAGEMAKER_BATCH": "true", "OMP_NUM_THREADS": "2"}, 2),
        ({"SAGEHEN_ADAPTER": "lightgbm", "SAGEMAKER_BATCH": "true"}, 1),
    ],
)
def test_a_large_call_of_xgboost_takes_all_cores_in_a_transform_job(
    monkeypatch, variables, most_threads
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert read_environment(variables).most_threads == most_threads
