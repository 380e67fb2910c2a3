import pytest

from sagehen.base.errors import SettingError
from sagehen.containers.modelserver.serving.batch_limits import NATURAL, read_batch_limits


@pytest.mark.parametrize(
    ("environ", "rows", "seconds"),
    [
        ({"SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "50"}, 8, 0.05),
        ({"TS_BATCH_SIZE": "8", "SAGEMAKER_TS_BATCH_SIZE": "16"}, 16, 0),
        ({"MMS_BATCH_SIZE": "4", "MMS_MAX_BATCH_DELAY": "0"}, 4, 0),
        ({"SERVING_BATCH_SIZE": "4", "SERVING_MAX_BATCH_DELAY": "1"}, 4, 0.001),
        ({"SAGEMAKER_TS_BATCH_SIZE": "1"}, 1, 0),
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "true"}, 8, 0.001),
        (
            {
                "SAGEMAKER_TFS_ENABLE_BATCHING": "True",
                "SAGEMAKER_TFS_MAX_BATCH_SIZE": "32",
                "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS": "0",
            },
            32,
            0,
        ),
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "false"}, 1, 0),
    ],
)
def test_a_container_is_told_by_the_variables_of_its_kind(environ, rows, seconds):
    found = read_batch_limits(environ)
    assert (found.max_rows, found.delay_seconds) == (rows, seconds)
    assert found.max_bytes > NATURAL.max_bytes


@pytest.mark.parametrize(
    "environ", [{}, {"SAGEMAKER_TFS_MAX_BATCH_SIZE": "8"}, {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "60"}]
)
def test_what_asks_for_no_batches_leaves_them_natural(environ):
    assert read_batch_limits(environ) == NATURAL


def test_a_delay_without_a_size_is_said_to_have_no_effect(caplog):
    assert read_batch_limits({"SAGEMAKER_TS_MAX_BATCH_DELAY": "100"}) == NATURAL
    assert "no effect without a batch size" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SAGEMAKER_TS_BATCH_SIZE", "0"),
        ("TS_MAX_BATCH_DELAY", "-1"),
        ("SAGEMAKER_TFS_ENABLE_BATCHING", "maybe"),
    ],
)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(SettingError, match=f"{name} is '{value}'"):
        read_batch_limits({name: value})
