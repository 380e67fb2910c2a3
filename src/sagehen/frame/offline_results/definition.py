"""Defines where an endpoint's offline results are, and how a request finds its own, by variables of
the model's container: every client can set them, and AWS ignores them."""

import re
from collections.abc import Mapping

import msgspec

from sagehen.base.errors import Invalid
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.frame.tolerance import Tolerance

__all__ = [
    "BROKEN_ROWS",
    "LINE",
    "REST",
    "OfflineResults",
    "Selector",
    "read_offline_results",
    "read_selector",
    "store_name",
]

VARIABLE = "SAGEHEN_OFFLINE_RESULTS"
_KEY = f"{VARIABLE}_KEY"
_ANSWER = f"{VARIABLE}_ANSWER"
_REQUEST_KEY = f"{VARIABLE}_REQUEST_KEY"
_ONLY = f"{VARIABLE}_ONLY"
BROKEN_ROWS = f"{VARIABLE}_MAX_BROKEN_ROWS"
_VARIABLES = {VARIABLE, _KEY, _ANSWER, _REQUEST_KEY, _ONLY, BROKEN_ROWS}
_MEANINGS = {
    VARIABLE: "It is the S3 prefix of the results: s3://bucket/prefix.",
    _KEY: "It is the column of CSV, or the field of JSON Lines, by which requests find their rows.",
}

REST = "rest"
"""as an answer: the row without its key"""
LINE = "line"
"""as an answer: the whole row"""

Selector = int | tuple[str, ...]
"""A column of CSV, from 0, or negative from the end; or the path to a field of a JSON object."""

_COLUMN = re.compile(r"-?[0-9]{1,5}")
_NAME = re.compile(r"[^.\[\]$*?@'\"\s]+")
_MOST_NAMES = 32


class OfflineResults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of one variant, as its model's variables define them."""

    source: str
    """`s3://bucket/prefix` of the objects"""
    key: str
    """the selector of a row's key; a column means CSV, a field JSON Lines"""
    answer: str = REST
    """`rest`, `line` or a selector"""
    request_key: str
    """the selector of the key in a request's rows"""
    only: bool = False
    """the variant has no instances"""
    max_broken_rows: str | None = None
    """a number or a share of rows that are left out if they cannot be read; None: they fail the
    build"""
    revision: int = 0
    """grows with each refresh"""

    @property
    def location(self) -> Location:
        return parse_location(self.source)

    @property
    def tolerance(self) -> Tolerance:
        """Raises Invalid."""
        return Tolerance.parse(BROKEN_ROWS, self.max_broken_rows or "0", "rows")

    @property
    def is_csv(self) -> bool:
        return isinstance(read_selector(self.key), int)


def store_name(deployment_id: str, variant: str, revision: int) -> str:
    """Returns the file name of a store, which is written once and never changed."""
    return f"{deployment_id}.{variant}.{revision}.db"


def read_selector(text: str) -> Selector:
    """Reads `3`, `-1`, `id` or `$.user.id`. Raises Invalid."""
    if _COLUMN.fullmatch(text):
        return int(text)
    names = tuple(text.removeprefix("$.").split("."))
    if len(names) <= _MOST_NAMES and all(map(_NAME.fullmatch, names)):
        return names
    raise Invalid(
        f"{text[:80]!r} selects nothing: give the number of a column of CSV (0 is the first, -1 "
        "the last), or the name of a field of a JSON object, such as id or $.user.id."
    )


def read_offline_results(environment: Mapping[str, str]) -> OfflineResults | None:
    """Returns None if no variable is set. Raises Invalid."""
    values = {
        name: value.strip() for name, value in environment.items() if name.startswith(VARIABLE)
    }
    if not values:
        return None
    if unknown := values.keys() - _VARIABLES:
        raise Invalid(
            f"There is no variable {min(unknown)}. There are {', '.join(sorted(_VARIABLES))}."
        )
    source, key = values.get(VARIABLE, ""), values.get(_KEY, "")
    for name, value in ((VARIABLE, source), (_KEY, key)):
        if not value:
            set_name = min(values.keys() - {name}, default=name)
            raise Invalid(f"{set_name} needs {name}. {_MEANINGS[name]}")
    _check_source(source)
    results = OfflineResults(
        source=source,
        key=_checked(_KEY, key),
        answer=values.get(_ANSWER) or REST,
        request_key=_checked(_REQUEST_KEY, values.get(_REQUEST_KEY) or key),
        only=_read_switch(_ONLY, values.get(_ONLY, "")),
        max_broken_rows=values.get(BROKEN_ROWS) or None,
    )
    _ = results.tolerance
    _check_answer(results)
    return results


def _check_source(source: str) -> None:
    try:
        location = parse_location(source)
    except Invalid:
        location = None
    if location is None or not source.startswith("s3://") or not source.isprintable():
        raise Invalid(f"{VARIABLE} is {source[:200]!r}. {_MEANINGS[VARIABLE]}")


def _checked(variable: str, text: str) -> str:
    try:
        read_selector(text)
    except Invalid as error:
        raise Invalid(f"{variable}: {error}") from error
    return text


def _check_answer(results: OfflineResults) -> None:
    key, answer = read_selector(results.key), results.answer
    if answer == LINE:
        return
    if answer == REST:
        if isinstance(key, tuple) and len(key) > 1:
            raise Invalid(
                f"{_ANSWER} must be a field or `line`: the key {results.key} lies inside another "
                "field, so there is no rest of the row without it."
            )
        return
    _checked(_ANSWER, answer)
    if isinstance(read_selector(answer), int) is not isinstance(key, int):
        raise Invalid(
            f"{_ANSWER} {answer!r} and {_KEY} {results.key!r} do not go together: the rows have "
            "either columns or fields."
        )


def _read_switch(variable: str, text: str) -> bool:
    switch = {"": False, "false": False, "0": False, "true": True, "1": True}.get(text.lower())
    if switch is None:
        raise Invalid(f"{variable} is {text[:40]!r}; it must be true or false.")
    return switch
