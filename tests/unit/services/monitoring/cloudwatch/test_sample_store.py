"""Samples by the minute: what is added is there, merged, for as long as it is kept."""

import pytest

from sagehen.base.errors import LimitExceeded
from sagehen.frame.statistics import Series, as_dimensions, of_set, of_values
from sagehen.services.monitoring.cloudwatch import sample_reads
from sagehen.services.monitoring.cloudwatch.sample_reads import (
    Window,
    find,
    metrics,
    read,
    read_each,
)
from sagehen.services.monitoring.cloudwatch.sample_store import (
    TENS,
    add,
    count_samples,
    count_series,
    prune,
)
from sagehen.state.database import Database

MOST = 100
LATENCY = Series("AWS/SageMaker", "ModelLatency", as_dimensions({"EndpointName": "e"}), "Seconds")
ERRORS = Series("AWS/SageMaker", "Errors", as_dimensions({"EndpointName": "e"}))


def put(database: Database, *given, most=MOST):
    """`given`: (series, minute, statistics)."""
    with database.write() as connection:
        return add(connection, {(one, minute): seen for one, minute, seen in given}, most)


def numbers(seen):
    return (seen.count, seen.sum, seen.minimum, seen.maximum)


def slots(database, series, window, distributions=False):
    """By period, counted from the window's start; the window is in minutes."""
    in_seconds = Window(*(60 * number for number in window))
    with database.read() as connection:
        ids = list(find(connection, series).values())
        found = read(connection, ids, in_seconds, distributions)
    return {
        (second - in_seconds.start) // in_seconds.period: seen for second, seen in found.items()
    }


def test_what_is_added_is_read_by_period(any_database):
    put(any_database, (LATENCY, 100, of_values({1.0: 2})), (LATENCY, 101, of_values({3.0: 1})))
    put(any_database, (LATENCY, 103, of_values({5.0: 1})), (ERRORS, 103, of_values({1.0: 1})))
    for distributions in (False, True):
        found = slots(any_database, LATENCY, Window(100, 104, 2), distributions)
        assert {place: numbers(seen) for place, seen in found.items()} == {
            0: (3, 5.0, 1.0, 3.0),
            1: (1, 5.0, 5.0, 5.0),
        }
        assert slots(any_database, LATENCY, Window(102, 103, 1), distributions) == {}


def test_a_minute_is_written_again_and_merged(any_database):
    put(any_database, (LATENCY, 100, of_values({float(value): 1 for value in range(1, 51)})))
    put(any_database, (LATENCY, 100, of_values({float(value): 1 for value in range(51, 101)})))
    (seen,) = slots(any_database, LATENCY, Window(100, 101, 1), True).values()
    assert numbers(seen) == (100, 5050.0, 1.0, 100.0)
    assert seen.percentile(50) == pytest.approx(50, rel=0.02)
    assert seen.percentile(99) == pytest.approx(99, rel=0.02)


def test_fractions_negatives_and_sets_come_back(any_database):
    put(any_database, (LATENCY, 1, of_values({-2.5: 1, 0.0: 2, 0.25: 1.5})))
    (seen,) = slots(any_database, LATENCY, Window(1, 2, 1), True).values()
    assert numbers(seen) == (4.5, -2.125, -2.5, 0.25)
    assert seen.percentile(0) == -2.5
    put(any_database, (LATENCY, 1, of_set(10, 50, 1, 9)))
    (seen,) = slots(any_database, LATENCY, Window(1, 2, 1), True).values()
    assert numbers(seen) == (14.5, 47.875, -2.5, 9)
    assert seen.percentile(50) is None


def test_series_of_one_metric_differ_by_unit(any_database):
    other = LATENCY._replace(unit="Count")
    put(any_database, (LATENCY, 1, of_values({1.0: 1})), (other, 1, of_values({2.0: 1})))
    with any_database.read() as connection:
        assert sorted(find(connection, LATENCY)) == ["Count", "Seconds"]
        assert [one[:3] for one in metrics(connection, 0, None, None, 0)] == [LATENCY[:3]]


def test_metrics_are_listed_in_order_and_by_what_they_are(any_database):
    series = [Series("n", f"m{number}", (("d", str(number)),)) for number in range(5)]
    for minute, one in enumerate(series):
        put(any_database, (one, 10 + minute, of_values({1.0: 1})))
    with any_database.read() as connection:
        found = list(metrics(connection, 0, "n", None, 0))
        assert [one.name for one in found] == ["m0", "m1", "m2", "m3", "m4"]
        assert [one.name for one in metrics(connection, found[2].cursor, None, None, 0)] == [
            "m3",
            "m4",
        ]
        assert [one.dimensions for one in metrics(connection, 0, "n", "m3", 0)] == [(("d", "3"),)]
        assert [one.name for one in metrics(connection, 0, None, None, 13)] == ["m3", "m4"]
        assert list(metrics(connection, 0, "other", None, 0)) == []


def test_no_more_series_than_there_may_be(any_database):
    series = [Series("n", f"m{number}", ()) for number in range(5)]
    assert put(any_database, (series[0], 1, of_values({1.0: 1})), most=2) == set()
    refused = put(any_database, *((one, 1, of_values({1.0: 1})) for one in series), most=2)
    assert len(refused) == 3
    assert series[0] not in refused
    with any_database.read() as connection:
        assert count_series(connection) == 2
    (seen,) = slots(any_database, series[0], Window(1, 2, 1)).values()
    assert seen.count == 2


def test_what_is_old_goes_a_few_series_at_a_time(any_database):
    series = [Series("n", f"m{number}", ()) for number in range(5)]
    for one in series:
        put(any_database, *((one, minute, of_values({1.0: 1})) for minute in (1, 2, 3)))
    put(any_database, (series[4], 9, of_values({1.0: 1})))
    after, rounds = 0, 0
    while after is not None:
        with any_database.write() as connection:
            after = prune(connection, 3, 0, after, 2)
        rounds += 1
    assert rounds == 4
    with any_database.read() as connection:
        assert (count_samples(connection), count_series(connection)) == (6, 5)
    with any_database.write() as connection:
        assert prune(connection, 9, 0, 0, 100) is not None
        assert (count_samples(connection), count_series(connection)) == (1, 1)


def test_not_more_sketches_are_read_than_fit(any_database, monkeypatch):
    monkeypatch.setattr(sample_reads, "MAX_SKETCHES", 2)
    put(any_database, *((LATENCY, minute, of_values({1.0: 1})) for minute in (1, 2, 3)))
    assert len(slots(any_database, LATENCY, Window(1, 3, 1), True)) == 2
    with pytest.raises(LimitExceeded):
        slots(any_database, LATENCY, Window(1, 4, 1), True)


def test_very_long_names_are_names_too(any_database):
    dimensions = as_dimensions({f"{number:02}" + "d" * 250: "v" * 1024 for number in range(30)})
    long = Series("n" * 255, "m" * 255, dimensions)
    put(any_database, (long, 1, of_values({1.0: 1})))
    with any_database.read() as connection:
        (found,) = metrics(connection, 0, None, None, 0)
    assert found[:3] == long[:3]


def test_a_batch_of_many(any_database):
    series = [Series("n", f"m{number}", ()) for number in range(1200)]
    for _ in range(2):
        assert not put(
            any_database, *((one, 1, of_values({1.0: 1})) for one in series), most=10_000
        )
    with any_database.read() as connection:
        assert (count_samples(connection), count_series(connection)) == (1200, 1200)
    assert slots(any_database, series[-1], Window(1, 2, 1))[0].count == 2


def test_many_minutes_of_one_series(any_database):
    minutes = range(700)
    for _ in range(2):
        put(any_database, *((LATENCY, minute, of_values({1.0: 1})) for minute in minutes))
    found = slots(any_database, LATENCY, Window(0, 700, 1))
    assert {seen.count for seen in found.values()} == {2}
    assert len(found) == 700


def put_fine(database, *given):
    """`given`: (series, slot of ten seconds, statistics)."""
    with database.write() as connection:
        add(connection, {(one, slot): seen for one, slot, seen in given}, MOST, TENS)


def fine(database, series, window, distributions=False):
    with database.read() as connection:
        ids = list(find(connection, series).values())
        return read(connection, ids, window, distributions)


@pytest.mark.parametrize("distributions", [False, True])
def test_samples_of_ten_seconds(any_database, distributions):
    put_fine(any_database, (LATENCY, 600, of_values({1.0: 2})), (LATENCY, 601, of_values({3.0: 1})))
    put_fine(any_database, (LATENCY, 601, of_values({5.0: 1})), (LATENCY, 603, of_values({7.0: 1})))
    found = fine(any_database, LATENCY, Window(6000, 6040, 10), distributions)
    assert {second: numbers(seen) for second, seen in found.items()} == {
        6000: (2, 2.0, 1.0, 1.0),
        6010: (2, 8.0, 3.0, 5.0),
        6030: (1, 7.0, 7.0, 7.0),
    }
    found = fine(any_database, LATENCY, Window(6000, 6040, 20), distributions)
    assert {second: seen.sum for second, seen in found.items()} == {6000: 10.0, 6020: 7.0}


@pytest.mark.parametrize("distributions", [False, True])
def test_minutes_are_points_of_short_periods(any_database, distributions):
    put(any_database, (LATENCY, 100, of_values({1.0: 2})), (LATENCY, 101, of_values({3.0: 1})))
    found = fine(any_database, LATENCY, Window(5990, 6090, 10), distributions)
    assert {second: seen.sum for second, seen in found.items()} == {6000: 2.0, 6060: 3.0}


def test_fine_samples_go_sooner(any_database):
    put(any_database, (LATENCY, 100, of_values({1.0: 1})))
    put_fine(any_database, *((LATENCY, slot, of_values({1.0: 1})) for slot in (600, 605)))
    with any_database.write() as connection:
        prune(connection, 50, 603, 0, 100)
    assert list(fine(any_database, LATENCY, Window(6000, 6060, 10))) == [6050]
    assert len(slots(any_database, LATENCY, Window(100, 101, 1))) == 1


def test_sketches_of_many_series_are_read_in_parts(any_database, monkeypatch):
    """The limit is of one series: many alarms read many."""
    monkeypatch.setattr(sample_reads, "MAX_SKETCHES", 4)
    series = [Series("n", f"m{number}", ()) for number in range(5)]
    put(any_database, *((one, minute, of_values({1.0: 1})) for one in series for minute in (1, 2)))
    with any_database.read() as connection:
        ids = [number for one in series for number in find(connection, one).values()]
        found = read_each(connection, ids, Window(60, 180, 60), distributions=True)
    assert {number: len(of_series) for number, of_series in found.items()} == dict.fromkeys(ids, 2)
