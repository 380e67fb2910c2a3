"""The three parameters of a job."""

import pytest

from sagehen.http1.call import LocalAnswer
from sagehen.services.sagemaker.transform.runner.parameters import (
    DEFAULTS,
    ContainerParameters,
    describe,
    read_parameters,
    resolve,
)
from sagehen.services.sagemaker.transform.runner_messages import RunnerSettings
from support.transform_runs import make_spec


@pytest.mark.parametrize(
    "answer",
    [
        LocalAnswer(404, b'{"MaxPayloadInMB": 9}'),
        LocalAnswer(200, b"<html>"),
        LocalAnswer(200, b"[]"),
        LocalAnswer(200, b"{}"),
        LocalAnswer(200, b'{"MaxPayloadInMB": -1, "MaxConcurrentTransforms": 0}'),
        LocalAnswer(200, b'{"MaxPayloadInMB": true, "BatchStrategy": "MultiRecord"}'),
    ],
)
def test_what_a_container_does_not_say_has_a_default(answer: LocalAnswer) -> None:
    assert resolve(make_spec(), read_parameters(answer)) == DEFAULTS


def test_numbers_may_be_text() -> None:
    answer = LocalAnswer(200, b'{"MaxPayloadInMB": "0", "MaxConcurrentTransforms": "8"}')
    expected = ContainerParameters(max_payload_mb=0, max_concurrent=8)
    assert read_parameters(answer) == expected


def test_a_container_cannot_ask_for_any_number() -> None:
    answer = LocalAnswer(200, b'{"MaxPayloadInMB": 101, "MaxConcurrentTransforms": 1000000000000}')
    assert read_parameters(answer) == ContainerParameters(max_payload_mb=100, max_concurrent=1000)
    digits = b"9" * 5000
    answer = LocalAnswer(200, b'{"MaxPayloadInMB": "%b", "MaxConcurrentTransforms": ""}' % digits)
    assert read_parameters(answer) == ContainerParameters()


def test_the_job_comes_first() -> None:
    container = ContainerParameters(
        max_concurrent=2, max_payload_mb=3, batch_strategy="SingleRecord"
    )
    spec = make_spec(max_concurrent=5, max_payload_mb=0, batch_strategy="MultiRecord")
    own = RunnerSettings(max_concurrent=5, max_payload_mb=0, batch_strategy="MultiRecord")
    assert resolve(spec, container) == own
    assert resolve(make_spec(max_concurrent=0), container).max_concurrent == 2


def test_the_line_of_the_data_log() -> None:
    line = "MaxConcurrentTransforms=1, MaxPayloadInMB=6, BatchStrategy=MULTI_RECORD"
    assert describe(DEFAULTS) == line
