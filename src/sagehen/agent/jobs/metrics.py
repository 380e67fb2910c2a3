"""Finds a job's own metrics in its output by MetricDefinitions."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence

import regex

from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid
from sagehen.frame.job_specs import JobMetric, MetricDefinition
from sagehen.frame.regular_expressions import compile_expression

__all__ = ["JobMetrics", "PrintedLines", "check_definitions"]

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4096
"""the rest of a line is not searched"""
SEARCH_SECONDS = 0.02
"""per expression and line"""
_ALLOWED_SECONDS = (SEARCH_SECONDS, 10 * SEARCH_SECONDS, 100 * SEARCH_SECONDS)
"""tried in turn: `regex` counts all threads' CPU time"""
MAX_TIMEOUTS = 3
"""then the expression is dropped"""

_LINE_ENDS = regex.compile(rb"[\r\n]")


def check_definitions(definitions: Sequence[MetricDefinition]) -> None:
    """Raises Invalid for a malformed expression or one without a group."""
    for definition in definitions:
        _compile(definition)


class JobMetrics:
    """The last values, over all hosts. Thread-safe."""

    def __init__(self, definitions: Sequence[MetricDefinition], clock: Clock) -> None:
        self._expressions = {definition.name: _compile(definition) for definition in definitions}
        self._clock = clock
        self._timeouts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._latest: dict[str, JobMetric] = {}

    @property
    def latest(self) -> tuple[JobMetric, ...]:
        with self._lock:
            return tuple(self._latest.values())

    def lines(self) -> "PrintedLines | None":
        """The listener for one host's output; None without definitions."""
        return PrintedLines(self) if self._expressions else None

    def search(self, line: str) -> None:
        for name, expression in list(self._expressions.items()):
            try:
                match = _search(expression, line)
            except TimeoutError:
                self._count_timeout(name)
                continue
            if match is not None and (value := _number(match[1])) is not None:
                with self._lock:
                    self._latest[name] = JobMetric(name=name, value=value, at=self._clock.now())

    def _count_timeout(self, name: str) -> None:
        self._timeouts[name] += 1
        if self._timeouts[name] == MAX_TIMEOUTS:
            log.warning("The expression of the metric %s takes too long and is dropped.", name)
            self._expressions.pop(name, None)


class PrintedLines:
    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics
        self._line = bytearray()

    def __call__(self, data: bytes) -> None:
        """`data` is b"" at the end."""
        *complete, rest = _LINE_ENDS.split(data) if data else (b"", b"")
        for part in complete:
            self._add(part)
            if self._line:
                self._metrics.search(self._line.decode("utf-8", "replace"))
            self._line.clear()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._line += part[: MAX_LINE_BYTES - len(self._line)]


def _search(expression: "regex.Pattern[str]", line: str) -> "regex.Match[str] | None":
    """Raises TimeoutError after SEARCH_SECONDS of its own."""
    started = time.thread_time()
    for seconds in _ALLOWED_SECONDS:
        try:
            return expression.search(line, timeout=seconds, concurrent=True)
        except TimeoutError:
            if time.thread_time() - started >= SEARCH_SECONDS:
                raise
    raise TimeoutError


def _compile(definition: MetricDefinition) -> "regex.Pattern[str]":
    try:
        return compile_expression(definition.regex)
    except Invalid as error:
        raise Invalid(f"The Regex of the metric {definition.name} {error}") from error


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
