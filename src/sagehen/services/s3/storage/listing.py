"""Folds sorted keys into a listing with common prefixes, as S3 does."""

from collections.abc import Callable

from sagehen.services.s3.storage.records import Listing, ListingQuery, ObjectInfo

__all__ = ["common_prefix", "fold"]

Fetch = Callable[[bytes, bool, int], list[ObjectInfo]]
"""`fetch(start, inclusive, limit)` returns objects in key order"""


def common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    """`key` starts with `prefix`."""
    if not delimiter:
        return None
    end = key.find(delimiter, len(prefix))
    return None if end < 0 else key[: end + len(delimiter)]


def fold(query: ListingQuery, fetch: Fetch) -> Listing:
    """Skips all keys of a common prefix with one query."""
    listing = Listing(objects=[], common_prefixes=[])
    if query.limit == 0:
        return listing
    start, inclusive = _start(query)
    last = query.after
    while True:
        count = len(listing.objects) + len(listing.common_prefixes)
        batch_size = query.limit + 1 - count
        batch = fetch(start, inclusive, batch_size)
        skipping = ""
        for info in batch:
            if skipping and info.key.startswith(skipping):
                continue
            if len(listing.objects) + len(listing.common_prefixes) == query.limit:
                return _finished(listing, last, truncated=True)
            common = common_prefix(info.key, query.prefix, query.delimiter)
            if common is None:
                listing.objects.append(info)
            else:
                listing.common_prefixes.append(common)
            skipping, last = common or "", common or info.key
        if len(batch) < batch_size:
            return _finished(listing, last, truncated=False)
        start, inclusive = _after(skipping) if skipping else (batch[-1].key.encode(), False)


def _finished(listing: Listing, last: str, *, truncated: bool) -> Listing:
    return Listing(
        objects=listing.objects,
        common_prefixes=listing.common_prefixes,
        last=last,
        truncated=truncated,
    )


def _start(query: ListingQuery) -> tuple[bytes, bool]:
    if query.after.startswith(query.prefix) and query.after:
        common = common_prefix(query.after, query.prefix, query.delimiter)
        if common is not None:
            return _after(common)
    return query.after.encode(), not query.after


def _after(common: str) -> tuple[bytes, bool]:
    """Returns the first possible key after all that start with `common`."""
    raw = common.encode()
    return raw[:-1] + bytes([raw[-1] + 1]), True
