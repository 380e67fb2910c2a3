"""How a line of the log looks, and that the table of metrics is sound."""

import io
import logging
import re
import sys

import pytest

from sagehen.base.telemetry import METRICS, LineFormatter, configure_logging


def line(message: str, *values: object, **extra: object) -> str:
    record = logging.getLogger("sagehen.some").makeRecord(
        "sagehen.some", logging.INFO, "file.py", 1, message, values, None, extra=extra
    )
    record.created, record.msecs = 0.25, 250.0
    return LineFormatter("control").format(record)


def test_a_line_is_a_sentence_and_what_it_is_about() -> None:
    assert line("An endpoint is gone.", action="endpoint_gone", endpoint="Houses") == (
        "1970-01-01T00:00:00.250Z INFO control sagehen.some: An endpoint is gone. "
        "action=endpoint_gone endpoint=Houses"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("a\nb", '"a\\nb"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("", '""'),
        ("a=b", '"a=b"'),
        (3, "3"),
        ("\x1b[31m", '"\\u001b[31m"'),
    ],
)
def test_a_value_cannot_be_taken_for_something_else(value: object, shown: str) -> None:
    assert line("It is so.", reason=value).endswith(f"It is so. reason={shown}")


def test_a_value_that_is_not_there_is_left_out() -> None:
    assert line("It is so.", reason=None).endswith("It is so.")


def test_what_a_library_adds_for_itself_is_left_out() -> None:
    assert line("It is so.", _timestamp_of_a_library=1_800_000_000).endswith("It is so.")


def test_a_sentence_stays_on_one_line() -> None:
    assert "\n" not in line("One %s", "two\r\nthree")


def test_a_long_value_is_cut() -> None:
    assert len(line("It is so.", reason="x" * 10**6)) < 3000


def test_an_exception_follows_its_line() -> None:
    try:
        raise ValueError("so it goes")
    except ValueError:
        record = logging.makeLogRecord({"msg": "It broke.", "exc_info": sys.exc_info()})

    text = LineFormatter("agent").format(record)

    assert text.splitlines()[-1] == "ValueError: so it goes"


def test_a_process_logs_to_stderr_from_its_level_on(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    try:
        configure_logging("WARNING", "agent")
        logging.getLogger("sagehen.x").info("Not this.")
        logging.getLogger("sagehen.x").warning("But this.")
        assert len(root.handlers) == 1
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    assert told.getvalue().rstrip().endswith("WARNING agent sagehen.x: But this.")
    assert "Not this." not in told.getvalue()


def test_names_are_prometheus_names_and_each_is_one_metrics() -> None:
    exposed = [metric.exposed_as for metric in METRICS.values() if metric.exposed_as is not None]

    assert len(set(exposed)) == len(exposed)
    assert all(re.fullmatch(r"sagehen_[a-z0-9_]+", name) for name in exposed)
    assert all(metric.help.endswith(".") for metric in METRICS.values())


def test_the_metrics_of_many_models_are_sagemakers() -> None:
    times = {
        "ModelLoadingWaitTime",
        "ModelUnloadingTime",
        "ModelDownloadingTime",
        "ModelLoadingTime",
    }
    for name in (*times, "ModelCacheHit", "LoadedModelCount"):
        metric = METRICS[name]
        assert metric.unit == ("Microseconds" if name in times else "None")
        assert metric.dimensions[:2] == ("endpoint", "variant")
        instances = "/aws/sagemaker/Endpoints"
        assert metric.namespace == (instances if name == "LoadedModelCount" else "AWS/SageMaker")
    assert METRICS["LoadedModelBytes"].namespace == "Sagehen"


def test_the_metrics_of_asynchronous_endpoints_are_sagemakers() -> None:
    by_endpoint = {
        "ApproximateBacklogSize": "Count",
        "ApproximateBacklogSizePerInstance": "Count",
        "ApproximateAgeOfOldestRequest": "Seconds",
        "HasBacklogWithoutCapacity": "Count",
    }
    by_variant = {
        "InvocationsProcesssed": "Count",
        "InvocationsProcessed": "Count",
        "InvocationFailures": "Count",
        "RequestDownloadFailures": "Count",
        "ResponseUploadFailures": "Count",
        "NotificationFailures": "Count",
        "ExpiredRequests": "Count",
        "RequestDownloadLatency": "Microseconds",
        "ResponseUploadLatency": "Microseconds",
        "TimeInBacklog": "Milliseconds",
        "TotalProcessingTime": "Milliseconds",
        "ModelLatency": "Microseconds",
        "Invocation4XXErrors": "None",
        "Invocation5XXErrors": "None",
    }
    for names, dimensions in (
        (by_endpoint, ("EndpointName",)),
        (by_variant, ("EndpointName", "VariantName")),
    ):
        for name, unit in names.items():
            metric = METRICS[name]
            assert (metric.unit, metric.cloudwatch_dimensions) == (unit, dimensions)
            assert metric.namespace == "AWS/SageMaker"
