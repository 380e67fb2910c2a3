"""Answers from offline results: finds the keys of a request's rows, and joins their answers.

Everything happens at once, on the event loop: a look-up takes some 10 µs where the page is in
memory, and a read of the disk where not. So the rows of a request are few.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from sagehen.base.errors import Invalid
from sagehen.frame.offline_results.definition import OfflineResults, read_selector
from sagehen.frame.offline_results.rows import csv_key, csv_rows, json_key, json_values, lines
from sagehen.frame.offline_results.store import ResultStore, StoreError, read_ahead
from sagehen.frame.routes import OfflineRoute

__all__ = ["MAX_ROWS", "OfflineAnswer", "OfflineAnswers", "OfflineStores"]

log = logging.getLogger(__name__)

MAX_ROWS = 1000
"""of a request, some 10 ms. Not a setting: other requests wait in that time. Of text also the
newlines, those of blank lines and in quotes included"""
MAX_ANSWER_BYTES = 25 * 2**20
"""as of a container"""

CSV = b"text/csv; charset=utf-8"
JSON = b"application/json"
JSON_LINES = b"application/jsonlines"


class OfflineAnswer(NamedTuple):
    content_type: bytes
    body: bytes


_ARRAY = re.compile(rb"\s*\[")
_ARRAY_OF_OBJECTS = re.compile(rb"\s*\[\s*\{")


class _Form(IntEnum):
    """How the rows stand in a request."""

    CSV = 0
    JSON_LINES = 1
    JSON_OBJECT = 2
    JSON_ARRAY = 3


_FORMS = {
    "text/csv": _Form.CSV,
    "application/json": _Form.JSON_OBJECT,
    "application/jsonlines": _Form.JSON_LINES,
    "application/x-jsonlines": _Form.JSON_LINES,
    "application/x-ndjson": _Form.JSON_LINES,
}


class OfflineAnswers:
    """The answers of one variant's results."""

    def __init__(self, get: Callable[[bytes], bytes | None], results: OfflineResults) -> None:
        """`get` returns the answer of a key, if any, and raises StoreError."""
        self._get = get
        self._selector = read_selector(results.request_key)
        self._is_csv = results.is_csv
        self._is_broken = False
        """a look-up has failed; others may succeed"""

    def find(self, content_type: str, accept: str, parts: Sequence[bytes]) -> OfflineAnswer | None:
        """Returns None unless the answer of every row is known, in a type that the caller takes."""
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        form = _FORMS.get(_media_type(content_type))
        if form is None:
            form = _Form.CSV if isinstance(self._selector, int) else _Form.JSON_OBJECT
        if form is _Form.JSON_OBJECT and _ARRAY.match(body):
            form = _Form.JSON_ARRAY
        result_type = self._result_type(form)
        if not _admits(accept, result_type):
            return None
        try:
            answers = self._answers(form, body)
        except Invalid:
            # A row without a key is as unknown as one with an unknown key.
            return None
        except StoreError as error:
            if not self._is_broken:
                # Once: each request may meet it.
                log.error("%s", error, extra={"action": "read_offline_results"})
            self._is_broken = True
            return None
        if answers is None:
            return None
        return OfflineAnswer(result_type, _joined(result_type, form, answers))

    def _answers(self, form: _Form, body: bytes) -> list[bytes] | None:
        answers: list[bytes] = []
        size = 0
        for key in self._keys(form, body):
            answer = self._get(key) if len(answers) < MAX_ROWS else None
            if answer is None:
                return None
            answers.append(answer)
            size += len(answer)
            if size > MAX_ANSWER_BYTES:
                return None
        return answers or None

    def _keys(self, form: _Form, body: bytes) -> Iterator[bytes]:
        """Raises Invalid."""
        selector = self._selector
        if isinstance(selector, int):
            if form is not _Form.CSV:
                raise Invalid("it has no columns.")
            _check_lines(body)
            return (csv_key(row, selector) for row in csv_rows([body]) if row)
        if form is _Form.CSV:
            raise Invalid("it has no fields.")
        if form is _Form.JSON_ARRAY:
            if not _ARRAY_OF_OBJECTS.match(body):
                # Megabytes of numbers, as models take them, would take a second and a GiB.
                raise Invalid("its first element has no fields.")
            return (json_key(row, selector) for row in json_values(body))
        if form is _Form.JSON_LINES:
            _check_lines(body)
            return (json_key(row, selector) for row in lines([body]) if row.strip())
        return iter([json_key(body, selector)])

    def _result_type(self, form: _Form) -> bytes:
        if self._is_csv:
            return CSV
        return JSON if form in (_Form.JSON_OBJECT, _Form.JSON_ARRAY) else JSON_LINES


def _check_lines(body: bytes) -> None:
    """Looks at few lines: megabytes of blank ones would hold up the event loop for seconds."""
    _, *others = body.split(b"\n", MAX_ROWS + 1)
    if len(others) > MAX_ROWS:
        raise Invalid(f"it has more than {MAX_ROWS} lines.")


def _joined(result_type: bytes, form: _Form, answers: Sequence[bytes]) -> bytes:
    if result_type != JSON:
        return b"\n".join(answers) + b"\n"
    return b"[" + b",".join(answers) + b"]" if form is _Form.JSON_ARRAY else answers[0]


def _media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _admits(accept: str, content_type: bytes) -> bool:
    """Whether an Accept header takes a type; weights are not looked at."""
    if not accept:
        return True
    media_type = _media_type(content_type.decode())
    general = media_type.partition("/")[0] + "/*"
    accepted = {_media_type(each) for each in accept.split(",")}
    return not accepted.isdisjoint((media_type, general, "*/*"))


class OfflineStores:
    """Opens the stores that the route table names, each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[OfflineRoute, OfflineAnswers] = {}

    def update(self, routed: Iterator[OfflineRoute]) -> None:
        """Forgets all stores but those of a new route table, and opens what is new."""
        before, self._opened = self._opened, {}
        for route in routed:
            answers = before.get(route) or self._open(route)
            if answers is not None:
                self._opened[route] = answers

    def get(self, route: OfflineRoute | None) -> OfflineAnswers | None:
        return None if route is None else self._opened.get(route)

    def _open(self, route: OfflineRoute) -> OfflineAnswers | None:
        """Returns None for a broken or missing store, which the next route table tries again."""
        path = self._folder / route.file
        if not path.exists():
            # On a node of a cluster, the agent copies it, and has the table read again.
            log.info("The offline results %s are not here yet.", route.file)
            return None
        try:
            store = ResultStore(path)
        except StoreError as error:
            log.error("%s", error, extra={"action": "open_offline_results"})
            return None
        # After a start of the machine nothing of the file is in memory, and no model is there yet:
        # look-ups are many, and each would make all requests wait for the disk.
        Thread(target=read_ahead, args=(path,), name="read-ahead", daemon=True).start()
        return OfflineAnswers(store.get, route.results)
