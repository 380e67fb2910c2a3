"""Builds one store from the objects below an S3 prefix, in a process of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from sagehen.base.errors import Invalid, NotFound, SagehenError, Unavailable
from sagehen.frame.offline_results.definition import BROKEN_ROWS, OfflineResults
from sagehen.frame.offline_results.rows import csv_rows, lines, row_reader
from sagehen.frame.offline_results.store import (
    BrokenRows,
    ResultStore,
    StoreError,
    StoreInfo,
    link_store,
    write_store,
)
from sagehen.frame.tolerance import Tolerance
from sagehen.services.s3.storage.records import ListingQuery
from sagehen.services.s3.storage.store import ObjectStore

__all__ = ["BuildReport", "BuildRequest", "build_store"]

_NOT_RESULTS = ("/", ".errors.jsonl")
"""ends of keys: folders, and the records of a transform job that failed"""
_FINGERPRINT_BYTES = 16
_MOST_EXAMPLES = 10
_LONGEST_EXAMPLE = 1000
"""characters"""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    """of the store"""
    results: OfflineResults
    existing: tuple[str, ...] = ()
    """files of other stores: one of the same objects is used again"""


class _Object(NamedTuple):
    """An object to read; there may be a hundred thousand."""

    bucket: str
    key: str
    etag: str
    size: int

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a build ended."""

    info: StoreInfo | None = None
    """None: it failed"""
    failure: str = ""
    is_final: bool = False
    """another attempt would fail for the same reason"""


def build_store(
    objects: ObjectStore, folder: Path, request: BuildRequest, now: float
) -> BuildReport:
    """Builds a store in constant memory; what stands in the way is reported, and never raised."""
    results = request.results
    try:
        infos = _list_objects(objects, results)
        fingerprint = _fingerprint(results, infos)
        existing = _find(folder, request.existing, fingerprint)
        if existing is not None:
            link_store(existing.path, folder / request.file)
            return BuildReport(info=existing.info)
        broken = _Broken(results.tolerance)
        rows = _rows(objects, infos, results, broken)
        info = write_store(folder / request.file, rows, fingerprint, now, broken.found)
        return BuildReport(info=info)
    except (Invalid, NotFound) as error:
        return BuildReport(failure=str(error), is_final=True)
    except (SagehenError, OSError) as error:
        return BuildReport(failure=str(error))


def _list_objects(objects: ObjectStore, results: OfflineResults) -> list[_Object]:
    """Raises NotFound."""
    location = results.location
    infos: list[_Object] = []
    query = ListingQuery(prefix=location.key)
    while True:
        page = objects.list_page(location.bucket, query)
        infos += (
            _Object(info.bucket, info.key, info.etag, info.size)
            for info in page.objects
            if info.size and not info.key.endswith(_NOT_RESULTS)
        )
        if not page.truncated:
            break
        query = msgspec.structs.replace(query, after=page.last)
    if not infos:
        raise NotFound(f"There are no results: no object below {results.source} has any bytes.")
    return infos


def _fingerprint(results: OfflineResults, infos: Iterable[_Object]) -> str:
    digest = blake2b(digest_size=_FINGERPRINT_BYTES)
    digest.update(msgspec.json.encode((results.source, results.key, results.answer)))
    if results.max_broken_rows is not None:
        digest.update(msgspec.json.encode(results.max_broken_rows))
    for info in infos:
        digest.update(msgspec.json.encode((info.key, info.etag, info.size)))
    return digest.hexdigest()


def _find(folder: Path, files: Sequence[str], fingerprint: str) -> ResultStore | None:
    for file in files:
        try:
            store = ResultStore(folder / file)
        except StoreError:
            continue  # removed in the meantime
        if store.info.fingerprint == fingerprint:
            return store
    return None


class _TooManyBroken(Invalid):
    """More rows cannot be read than may be left out."""


class _Broken:
    """Holds the rows that cannot be read against what is tolerated."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self.found = BrokenRows()

    def add(self, text: str) -> None:
        """Raises Invalid once a number of rows is exceeded; a share is known only at the end."""
        found = self.found
        found.count += 1
        if len(found.examples) < _MOST_EXAMPLES:
            found.examples.append(text[:_LONGEST_EXAMPLE])
        if self._tolerance.share is None:
            self._check(found.count)

    def end(self, rows: int) -> None:
        """`rows`: that were read. Raises Invalid."""
        if self.found.count:
            self._check(rows + self.found.count)

    def _check(self, total: int) -> None:
        found, tolerance = self.found, self._tolerance
        if not tolerance.is_exceeded(found.count, total):
            return
        if tolerance.count == 0:
            raise _TooManyBroken(found.examples[0])
        share = f" of {total}" if tolerance.share is not None else ""
        raise _TooManyBroken(
            f"{found.count}{share} rows cannot be read, more than the {tolerance.text} that "
            f"{BROKEN_ROWS} allows. The first: {found.examples[0]}"
        )


def _rows(
    objects: ObjectStore, infos: Iterable[_Object], results: OfflineResults, broken: _Broken
) -> Iterator[tuple[bytes, bytes]]:
    """Yields all keys and answers, in the order of the objects' keys.

    Raises Invalid, Unavailable.
    """
    cut = csv_rows if results.is_csv else lines
    read = row_reader(results)
    count = 0
    for info in infos:
        try:
            with objects.open(info.bucket, info.key) as opened:
                if opened.info.etag != info.etag:
                    raise _changed(info)
                count += yield from _rows_of(info, cut(opened.chunks()), read, broken)
        except NotFound as error:
            raise _changed(info) from error
    broken.end(count)


def _rows_of(
    info: _Object,
    rows: Iterator[bytes],
    read: Callable[[bytes], tuple[bytes, bytes]],
    broken: _Broken,
) -> Generator[tuple[bytes, bytes], None, int]:
    """Returns how many rows were read. Raises Invalid, also where the rows cannot be told apart."""
    number, count = 1, 0
    try:
        for row in rows:
            if row:
                try:
                    pair = read(row)
                except Invalid as error:
                    broken.add(f"{info.url}, row {number}: {error}")
                else:
                    yield pair
                    count += 1
            number += 1
    except _TooManyBroken:
        raise
    except Invalid as error:
        raise Invalid(f"{info.url}, row {number}: {error}") from error
    return count


def _changed(info: _Object) -> Unavailable:
    return Unavailable(f"{info.url} changed while it was read.")
