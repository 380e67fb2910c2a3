"""What is recorded is added up by the minute and written, and nothing grows without end."""

import threading

import pytest
from sqlalchemy.exc import OperationalError

from sagehen.frame.statistics import Series, as_dimensions, of_values
from sagehen.services.monitoring.cloudwatch.sample_reads import Window, find, read
from sagehen.services.monitoring.metering import recorder as module
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.endpoint_store import first_variant
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.clock import HandClock
from support.fleet import deployment, endpoint

VARIANT = {"EndpointName": "e", "VariantName": "v"}
START = 28_000_000
"""A minute."""


@pytest.fixture
def clock():
    return HandClock(START * 60.0)


@pytest.fixture
def recorder(clock, database):
    return Recorder(clock, database, 100, first_variant)


def written(database, name, unit="Count", namespace="AWS/SageMaker", **dimensions):
    """(count, sum) by minute since the start."""
    series = Series(namespace, name, as_dimensions(dimensions or VARIANT), unit)
    with database.read() as connection:
        ids = [find(connection, series)[unit]] if find(connection, series) else []
        found = read(connection, ids, Window(START * 60, (START + 1000) * 60, 60), True)
    return {second // 60 - START: (seen.count, seen.sum) for second, seen in found.items()}


def test_values_are_added_up_by_the_minute(recorder, clock, database):
    for seconds in (0, 59, 1, 70):
        recorder.record("InvocationFailures", VARIANT, 1)
        recorder.record("TimeInBacklog", VARIANT, 20 + seconds)
        clock.seconds += seconds
    recorder.flush()
    assert written(database, "InvocationFailures") == {0: (3, 3.0), 1: (1, 1.0)}
    assert written(database, "TimeInBacklog", "Milliseconds") == {0: (3, 120.0), 1: (1, 90.0)}


def test_a_minute_is_written_in_several_goes(recorder, clock, database):
    for _ in range(3):
        recorder.record("ExpiredRequests", VARIANT, 1)
        recorder.flush()
        clock.seconds += 5
    recorder.flush()
    assert written(database, "ExpiredRequests") == {0: (3, 3.0)}


def test_another_process_adds_to_the_same_minute(recorder, clock, database):
    recorder.record("ExpiredRequests", VARIANT, 1)
    recorder.flush()
    second = Recorder(clock, database, 100, first_variant)
    second.record("ExpiredRequests", {"VariantName": "v", "EndpointName": "e"}, 1)
    second.flush()
    assert written(database, "ExpiredRequests") == {0: (2, 2.0)}


def test_what_is_put_is_written_and_is_not_told_to_prometheus(recorder, database):
    recorder.put("Invocations", VARIANT, of_values({1.0: 7}))
    recorder.put("Invocations", VARIANT, of_values({1.0: 3}))
    recorder.flush()
    assert written(database, "Invocations", "None") == {0: (10, 10.0)}
    assert recorder.measured({"e"}) == {}


def test_containers_are_told_as_cloudwatch_has_them(recorder, database):
    container = {**VARIANT, "ContainerName": "c"}
    recorder.put("ContainerInvocations", container, of_values({1.0: 1}))
    recorder.flush()
    assert written(database, "Invocations", "None", **container) == {0: (1, 1.0)}


def test_prometheus_is_told_totals_of_endpoints_that_there_are(recorder):
    for value in (100, 200):
        recorder.record("TimeInBacklog", VARIANT, value)
        recorder.record("InvocationsProcessed", VARIANT, 1)
        recorder.flush()
    recorder.record("InvocationsProcessed", {**VARIANT, "EndpointName": "gone"}, 1)
    told = recorder.measured({"e"})
    assert told["InvocationsProcessed"] == {("e", "v"): 2}
    assert told["TimeInBacklogCount"] == {("e", "v"): 2}
    assert told["TimeInBacklogSum"] == {("e", "v"): 300}
    assert told["TimeInBacklogP50"][("e", "v")] == pytest.approx(100, rel=0.02)
    assert recorder.measured({"gone"}) == {}


def test_dimensions_by_our_own_names_are_the_same(recorder, database):
    recorder.record("InvocationFailures", {"endpoint": "e", "variant": "v"}, 1)
    recorder.record("InvocationFailures", VARIANT, 1)
    recorder.flush()
    assert written(database, "InvocationFailures") == {0: (2, 2.0)}
    recorder.record("InvocationFailures", {"endpoint": "e", "variant": "v"}, 1)
    assert recorder.measured({"e"})["InvocationFailures"] == {("e", "v"): 3}


def test_what_came_to_no_variant_counts_for_the_first(recorder, database):
    with database.write() as connection:
        made = endpoint(EndpointStatus.IN_SERVICE, name="e", current=deployment("d", 1, 1))
        endpoints.insert(connection, made)
    recorder.record("ExpiredRequests", {"endpoint": "e"}, 1)
    recorder.record("ExpiredRequests", {"endpoint": "e", "variant": "a"}, 1)
    recorder.record("ExpiredRequests", {"endpoint": "gone"}, 1)
    recorder.flush()
    first = {"EndpointName": "e", "VariantName": "a"}
    assert written(database, "ExpiredRequests", **first) == {0: (2, 2.0)}
    assert written(database, "ExpiredRequests", EndpointName="gone") == {0: (1, 1.0)}
    told = recorder.measured({"e"})["ExpiredRequests"]
    assert told == {("e", ""): 1, ("e", "a"): 1}


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("NoSuchMetric", VARIANT),
        ("InvocationFailures", {"VariantName": "v"}),
        ("InvocationFailures", {**VARIANT, "InstanceId": "i"}),
        ("ApproximateBacklogSize", VARIANT),
    ],
)
def test_what_is_no_metric_is_logged_and_dropped(recorder, caplog, name, dimensions):
    recorder.record(name, dimensions, 1)
    recorder.flush()
    assert recorder.dropped == 1
    assert caplog.records[0].metric == name
    assert recorder.measured({"e"}) == {}


def test_there_is_room_for_so_many_series(clock, database):
    recorder = Recorder(clock, database, 3, first_variant)
    for number in range(5):
        recorder.record("ExpiredRequests", {**VARIANT, "VariantName": str(number)}, 1)
    recorder.flush()
    assert recorder.dropped == 2
    for number in range(5, 8):
        recorder.record("ExpiredRequests", {**VARIANT, "VariantName": str(number)}, 1)
    recorder.flush()
    assert recorder.dropped == 5
    assert len(recorder.measured({"e"})["ExpiredRequests"]) == 3


def test_what_cannot_be_written_waits(recorder, clock, database, monkeypatch, caplog):
    def fail(*_):
        raise OperationalError("INSERT", {}, Exception("disk I/O error"))

    with monkeypatch.context() as patch:
        patch.setattr(module, "add", fail)
        recorder.record("ExpiredRequests", VARIANT, 1)
        recorder.flush()
        clock.seconds += 60
        recorder.record("ExpiredRequests", VARIANT, 1)
        recorder.flush()
    assert len(caplog.records) == 3
    recorder.flush()
    assert written(database, "ExpiredRequests") == {0: (1, 1.0), 1: (1, 1.0)}


def test_it_does_not_wait_for_ever(recorder, clock, database, monkeypatch):
    def fail(*_):
        raise OperationalError("INSERT", {}, Exception("disk I/O error"))

    with monkeypatch.context() as patch:
        patch.setattr(module, "add", fail)
        for _ in range(module.MAX_MINUTES + 5):
            recorder.record("ExpiredRequests", VARIANT, 1)
            clock.seconds += 60
        recorder.flush()
    recorder.flush()
    assert sorted(written(database, "ExpiredRequests")) == list(range(5, module.MAX_MINUTES + 5))
    assert recorder.dropped == 5


def test_a_clock_that_is_set_back(recorder, clock, database):
    recorder.record("ExpiredRequests", VARIANT, 1)
    clock.seconds += 600
    recorder.record("ExpiredRequests", VARIANT, 1)
    clock.seconds -= 600
    recorder.record("ExpiredRequests", VARIANT, 1)
    recorder.flush()
    assert written(database, "ExpiredRequests") == {0: (2, 2.0), 10: (1, 1.0)}


def test_many_threads_record_at_once(recorder, database):
    def work():
        for _ in range(2000):
            recorder.record("ExpiredRequests", VARIANT, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        recorder.flush()
    recorder.flush()
    assert written(database, "ExpiredRequests") == {0: (8000, 8000.0)}
    assert recorder.measured({"e"})["ExpiredRequests"] == {("e", "v"): 8000}
