"""Collects measurements from all of control, adds them up by the minute, and writes them
periodically."""

import logging
import threading
from collections.abc import Callable, Container, Mapping, Set
from itertools import islice

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.base.metrics import CLOUDWATCH_DIMENSIONS, METRICS, Metric, MetricKind
from sagehen.frame.statistics import Series, Statistics, as_dimensions, of_values
from sagehen.services.monitoring.cloudwatch.sample_store import MINUTES, TENS, Resolution, add
from sagehen.state.database import Database

__all__ = ["Recorder"]

log = logging.getLogger(__name__)

MAX_MINUTES = 60
"""minutes of unwritten values kept; older ones are dropped"""
MAX_FINE_SLOTS = 60
"""the same of ten seconds"""
SERIES_AT_ONCE = 250
"""in one transaction"""

_Key = tuple[str, *tuple[tuple[str, str], ...]]
"""metric name, then dimensions as given"""
_Values = dict[_Key, Statistics]
FirstVariant = Callable[[Connection, str], str | None]
"""returns the first variant of a serving endpoint"""


class _GaugeReadings:
    """Readings of one gauge source in one minute."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = self._recorded_value = 0.0

    def add(self, value: float, latest: bool) -> Statistics:
        """Returns the change to the minute's statistics, part of which may be written already."""
        self._count += 1
        self._sum += value
        current = value if latest else self._sum / self._count
        change = of_values({value: 1})
        change.count, change.sum = float(self._count == 1), current - self._recorded_value
        self._recorded_value = current
        return change


class Recorder:
    """Records from any thread; a `kill -9` loses values since the last `flush`.

    Memory is bounded by `most_series` series a minute and, while the store cannot be written,
    MAX_MINUTES minutes.
    """

    def __init__(
        self,
        clock: Clock,
        database: Database,
        most_series: int,
        first_variant: FirstVariant,
    ) -> None:
        self._clock = clock
        self._first_variant = first_variant
        self._database = database
        self._most_series = most_series
        self._lock = threading.Lock()
        self._minute = 0
        self._starts = self._ends = 0.0
        self._recorded: _Values = {}
        """in the current minute, as in `_put`"""
        self._put: _Values = {}
        self._unwritten: dict[int, _Values] = {}
        self._fine: dict[int, _Values] = {}
        """unwritten values of METRICS that are also kept by ten seconds, by slot"""
        self._readings: dict[tuple[_Key, str], _GaugeReadings] = {}
        """in the current minute, by gauge and source"""
        self._totals: _Values = {}
        """finished values since the process began"""
        self.dropped = 0
        """values over the `metric_series` limit"""

    def record(self, name: str, dimensions: Mapping[str, str], value: float) -> None:
        """Records a value of a metric of METRICS; never raises, so that measured code goes on.

        Args:
            dimensions: by our names or CloudWatch's; without a variant, the value counts for the
                endpoint's first, as for requests that ended before routing.
        """
        key: _Key = (name, *dimensions.items())
        with self._lock:
            if not self._starts <= self._clock.now() < self._ends:
                self._turn()
            statistics = self._recorded.get(key) or self._open(self._recorded, key)
            if statistics is not None:
                statistics.add(value)

    def put(self, name: str, dimensions: Mapping[str, str], statistics: Statistics) -> None:
        """Adds statistics whose source reports them to Prometheus itself."""
        key: _Key = (name, *dimensions.items())
        with self._lock:
            if not self._starts <= self._clock.now() < self._ends:
                self._turn()
            current = self._put.get(key) or self._open(self._put, key)
            if current is not None:
                current.merge(statistics)

    def put_into(
        self, minute: int, name: str, dimensions: Mapping[str, str], statistics: Statistics
    ) -> None:
        """Like `put`, for a minute that is over."""
        key: _Key = (name, *dimensions.items())
        with self._lock:
            values = self._unwritten.setdefault(minute, {})
            if key in values or len(values) < self._most_series:
                _merge(values, {key: statistics})

    def put_fine(self, name: str, dimensions: Mapping[str, str], statistics: Statistics) -> None:
        """Like `put`, and keeps the values of each ten seconds for some hours, too."""
        self.put(name, dimensions, statistics)
        self.put_tens(name, dimensions, statistics)

    def put_tens(self, name: str, dimensions: Mapping[str, str], statistics: Statistics) -> None:
        """Keeps values of the current ten seconds; those of the minute are put by themselves."""
        key: _Key = (name, *dimensions.items())
        with self._lock:
            values = self._fine.setdefault(int(self._clock.now() // TENS.seconds), {})
            current = values.get(key)
            if current is None and len(values) < self._most_series:
                current = values[key] = Statistics()
            if current is not None:
                current.merge(statistics)

    def record_gauge(
        self,
        name: str,
        dimensions: Mapping[str, str],
        value: float,
        source: str = "",
        latest: bool = False,
    ) -> None:
        """Reads a gauge. A minute has one sample per source, so its sum is that of all sources;
        minimum, maximum and percentiles cover all readings.

        Args:
            source: such as an instance, if the metric is of a whole variant.
            latest: keep the minute's last reading instead of the mean.
        """
        key: _Key = (name, *dimensions.items())
        with self._lock:
            if not self._starts <= self._clock.now() < self._ends:
                self._turn()
            current = self._put.get(key) or self._open(self._put, key)
            if current is not None:
                readings = self._readings.setdefault((key, source), _GaugeReadings())
                current.merge(readings.add(value, latest))

    def flush(self) -> None:
        """Writes new values; those that cannot be written are kept. Blocks."""
        with self._lock:
            self._turn()
            batches, self._unwritten = self._unwritten, {}
            slot = int(self._clock.now() // TENS.seconds)
            # Written once, when it is over.
            fine = {number: values for number, values in self._fine.items() if number != slot}
            self._fine = {number: self._fine[number] for number in self._fine.keys() - fine.keys()}
        self._write_all(batches, self._unwritten, MINUTES, MAX_MINUTES)
        self._write_all(fine, self._fine, TENS, MAX_FINE_SLOTS)

    def _write_all(
        self,
        batches: dict[int, _Values],
        unwritten: dict[int, _Values],
        resolution: Resolution,
        most: int,
    ) -> None:
        for slot in sorted(batches):
            keys = iter(batches[slot].items())
            # Other writers of the state need not wait for thousands of series.
            while part := dict(islice(keys, SERIES_AT_ONCE)):
                self._write_part(slot, part, unwritten, resolution, most)

    def _write_part(
        self,
        slot: int,
        values: _Values,
        unwritten: dict[int, _Values],
        resolution: Resolution,
        most: int,
    ) -> None:
        try:
            with self._database.write() as connection:
                dropped = self._write(connection, slot, values, resolution)
        except (SagehenError, SQLAlchemyError) as error:
            log.warning(
                "Samples of metrics cannot be written yet.",
                extra={"action": "flush", "slot": slot, "error": str(error)[:200]},
            )
            self._keep_unwritten(unwritten, slot, values, most)
        else:
            with self._lock:
                self.dropped += dropped

    def measured(self, endpoints: Container[str]) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns totals for Prometheus, by exposed name and dimensions; forgets all but
        those of `endpoints`."""
        with self._lock:
            self._turn()
            deleted = [
                key for key in self._totals if dict(key[1:])["EndpointName"] not in endpoints
            ]
            for key in deleted:
                del self._totals[key]
            totals = {key: statistics.copy() for key, statistics in self._totals.items()}
        measured: dict[str, dict[tuple[str, ...], float]] = {}
        for (name, *pairs), statistics in totals.items():
            named = dict(pairs)
            dimensions = tuple(
                named.get(dimension, "") for dimension in METRICS[name].cloudwatch_dimensions
            )
            for exposed, value in _values(name, statistics):
                measured.setdefault(exposed, {})[dimensions] = value
        return measured

    def _turn(self) -> None:
        """Moves recorded values to their minute, and starts the current minute."""
        for recorded_key, statistics in self._recorded.items():
            key: _Key = (recorded_key[0], *as_dimensions(_dimensions_of(recorded_key)))
            if key in self._totals or len(self._totals) < self._most_series:
                self._totals.setdefault(key, Statistics()).merge(statistics)
        for values in (self._recorded, self._put):
            if values:
                _merge(self._unwritten.setdefault(self._minute, {}), values)
        self._recorded, self._put = {}, {}
        minute = int(self._clock.now() // 60)
        if minute != self._minute:
            self._readings.clear()
        self._minute = minute
        self._starts, self._ends = self._minute * 60.0, self._minute * 60.0 + 60

    def _open(self, values: _Values, key: _Key) -> Statistics | None:
        if len(values) >= self._most_series:
            self.dropped += 1
            return None
        metric = METRICS.get(key[0])
        if metric is None or not _is_about(metric, _dimensions_of(key).keys()):
            self.dropped += 1
            log.error(
                "A value was dropped: its metric or dimensions are unknown.",
                extra={"action": "record", "metric": key[0], "dimensions": key[1:]},
            )
            return None
        statistics = values[key] = Statistics()
        return statistics

    def _write(
        self, connection: Connection, slot: int, values: _Values, resolution: Resolution
    ) -> int:
        batch: dict[tuple[Series, int], Statistics] = {}
        for key, statistics in values.items():
            series = _series(key[0], _with_variant(connection, key, self._first_variant))
            batch.setdefault((series, slot), Statistics()).merge(statistics)
        return len(add(connection, batch, self._most_series, resolution))

    def _keep_unwritten(
        self, unwritten: dict[int, _Values], slot: int, values: _Values, most: int
    ) -> None:
        with self._lock:
            _merge(unwritten.setdefault(slot, {}), values)
            while len(unwritten) > most:
                self.dropped += len(unwritten.pop(min(unwritten)))


def _merge(into: _Values, values: _Values) -> None:
    for key, statistics in values.items():
        current = into.get(key)
        if current is None:
            into[key] = statistics
        else:
            current.merge(statistics)


def _dimensions_of(key: _Key) -> dict[str, str]:
    """Returns the dimensions under CloudWatch's names."""
    return {CLOUDWATCH_DIMENSIONS.get(name, name): value for name, value in key[1:]}


def _is_about(metric: Metric, names: Set[str]) -> bool:
    """Requires the first dimension; the others may be missing, for a value of all."""
    expected = metric.cloudwatch_dimensions
    return bool(expected) and expected[0] in names and names <= set(expected)


def _with_variant(connection: Connection, key: _Key, first_variant: FirstVariant) -> dict[str, str]:
    dimensions = _dimensions_of(key)
    if "VariantName" in METRICS[key[0]].cloudwatch_dimensions and "VariantName" not in dimensions:
        variant = first_variant(connection, dimensions["EndpointName"])
        if variant is not None:
            dimensions["VariantName"] = variant
    return dimensions


def _series(name: str, dimensions: dict[str, str]) -> Series:
    metric = METRICS[name]
    return Series(metric.namespace, metric.cloudwatch_name, as_dimensions(dimensions), metric.unit)


def _values(name: str, statistics: Statistics) -> list[tuple[str, float]]:
    if METRICS[name].kind is not MetricKind.TIMING:
        return [(name, statistics.sum)]
    values: list[tuple[str, float]] = [
        (name + "Sum", statistics.sum),
        (name + "Count", statistics.count),
    ]
    for percent in (50, 90, 99):
        if (value := statistics.percentile(percent)) is not None:
            values.append((f"{name}P{percent}", value))
    return values
