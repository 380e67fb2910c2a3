"""One build: what is read from S3, what is used again, and what is reported."""

from functools import partial

import pytest
from msgspec.structs import replace

from sagehen.base.errors import Unavailable
from sagehen.frame.offline_results.store import ResultStore, StoreInfo
from sagehen.services.s3.storage.records import Attributes, ListingQuery
from sagehen.services.sagemaker.offline_results import building
from sagehen.services.sagemaker.offline_results.building import (
    BuildReport,
    BuildRequest,
    build_store,
)
from support.offline_results import RESULTS

REQUEST = BuildRequest(file="d.a.0.db", results=replace(RESULTS, source="s3://models/job/"))


@pytest.fixture
def put(local):
    def put(key: str, data: bytes) -> None:
        draft = local.draft()
        draft.write(data)
        local.put("models", key, draft, Attributes())

    return put


@pytest.fixture
def build(local, home):
    def build(request: BuildRequest = REQUEST, objects=local, now: float = 5.0) -> BuildReport:
        return build_store(objects, home.offline_results, request, now)

    return build


def answers(home, *keys: bytes, file: str = "d.a.0.db") -> list[bytes | None]:
    store = ResultStore(home.offline_results / file)
    return [store.get(key) for key in keys]


def test_all_objects_below_the_prefix_are_read_in_the_order_of_their_keys(put, build, home) -> None:
    put("job/2.csv.out", b"b,2\nc,3\n\n")
    put("job/10.csv.out", b"a,1\nb,first")
    put("job/deeper/x", b"d,4\n")
    put("other/x", b"e,5\n")
    report = build()
    assert (report.info.keys, report.info.rows, report.info.built_at) == (4, 5, 5.0)
    assert answers(home, b"a", b"b", b"c", b"d", b"e") == [b"1", b"2", b"3", b"4", None]


def test_what_is_no_result_is_left_out(put, build) -> None:
    put("job/", b"")
    put("job/folder/", b"not,this")
    put("job/empty", b"")
    put("job/a.errors.jsonl", b'{"row": 1}')
    put("job/a.out", b"a,1\n")
    assert build().info.keys == 1


def test_more_objects_than_a_page_are_read(put, build, monkeypatch) -> None:
    monkeypatch.setattr(building, "ListingQuery", partial(ListingQuery, limit=2))
    for number in range(5):
        put(f"job/{number}", b"%d,x\n" % number)
    assert build().info.keys == 5


def test_json_lines_are_read(put, build, home) -> None:
    put("job/out", b'{"id":"a","s":0.5}\r\n{"id":2,"s":1}')
    results = replace(RESULTS, source="s3://models/job/", key="id", request_key="id", answer="s")
    assert build(replace(REQUEST, results=results)).info.keys == 2
    assert answers(home, b"a", b"2") == [b"0.5", b"1"]


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b"a,1\nb\n", "s3://models/job/out, row 2: it has no column 1, only 1 columns."),
        (b'a,1\n\nb,"2\n', "s3://models/job/out, row 3: a quote is not closed."),
        (b"", "There are no results: no object below s3://models/job/ has any bytes."),
    ],
)
def test_what_cannot_be_used_is_final_and_leaves_nothing(put, build, home, data, failure) -> None:
    put("job/out", data)
    results = replace(REQUEST.results, answer="1")
    assert build(replace(REQUEST, results=results)) == BuildReport(failure=failure, is_final=True)
    assert list(home.offline_results.iterdir()) == []


BROKEN = b"a,1\nb\nc,3\n\nd\n"


def test_broken_rows_are_left_out_counted_and_named(put, build, home) -> None:
    put("job/out", BROKEN)
    put("job/out2", b"e\n" + b"f,6\n" * 20)
    results = replace(REQUEST.results, answer="1", max_broken_rows="3")
    info = build(replace(REQUEST, results=results)).info
    assert (info.keys, info.rows, info.broken_rows) == (3, 22, 3)
    assert info.broken_examples == tuple(
        f"s3://models/job/{row}: it has no column 1, only 1 columns."
        for row in ("out, row 2", "out, row 5", "out2, row 1")
    )
    assert answers(home, b"a", b"b", b"f") == [b"1", None, b"6"]
    assert ResultStore(home.offline_results / "d.a.0.db").info == info


@pytest.mark.parametrize(
    ("tolerated", "count"), [("1", "2 rows"), ("49.9%", "2 of 4 rows"), ("0%", "2 of 4 rows")]
)
def test_too_many_broken_rows_fail_the_build(put, build, home, tolerated, count) -> None:
    put("job/out", BROKEN)
    results = replace(REQUEST.results, answer="1", max_broken_rows=tolerated)
    report = build(replace(REQUEST, results=results))
    assert report == BuildReport(
        failure=f"{count} cannot be read, more than the {tolerated} that "
        "SAGEHEN_OFFLINE_RESULTS_MAX_BROKEN_ROWS allows. The first: s3://models/job/out, row 2: "
        "it has no column 1, only 1 columns.",
        is_final=True,
    )
    assert list(home.offline_results.iterdir()) == []


def test_a_share_of_broken_rows_is_exact(put, build) -> None:
    put("job/out", BROKEN)
    results = replace(REQUEST.results, answer="1", max_broken_rows="50%")
    assert build(replace(REQUEST, results=results)).info.broken_rows == 2


def test_rows_that_cannot_be_told_apart_fail_the_build(put, build) -> None:
    put("job/out", b'a,1\nb,"2\nc,3\n')
    results = replace(REQUEST.results, max_broken_rows="100%")
    report = build(replace(REQUEST, results=results))
    assert report.failure == "s3://models/job/out, row 2: a quote is not closed."


def test_a_store_with_broken_rows_is_not_used_where_fewer_are_tolerated(put, build) -> None:
    put("job/out", BROKEN)
    results = replace(REQUEST.results, answer="1", max_broken_rows="50%")
    build(replace(REQUEST, results=results))
    strict = replace(results, max_broken_rows=None)
    again = BuildRequest(file="d.a.1.db", results=strict, existing=("d.a.0.db",))
    assert build(again).failure.startswith("s3://models/job/out, row 2")


def test_a_missing_bucket_is_final(build) -> None:
    results = replace(RESULTS, source="s3://nowhere/job/")
    report = build(replace(REQUEST, results=results))
    assert report.is_final
    assert "nowhere" in report.failure


class Away:
    """An object store that cannot be reached."""

    def list_page(self, bucket, query):
        raise Unavailable("The object store is away.")


def test_a_store_that_is_away_may_come_back(build) -> None:
    assert build(objects=Away()) == BuildReport(failure="The object store is away.")


class Changing:
    """An object store whose objects are replaced, or deleted, after they were listed."""

    def __init__(self, store, change) -> None:
        self._store, self._change = store, change

    def list_page(self, bucket, query):
        page = self._store.list_page(bucket, query)
        self._change()
        return page

    def open(self, bucket, key):
        return self._store.open(bucket, key)


def test_objects_that_change_meanwhile_are_read_again(put, build, local) -> None:
    put("job/out", b"a,1\n")
    changing = Changing(local, lambda: put("job/out", b"a,2\n"))
    failure = "s3://models/job/out changed while it was read."
    assert build(objects=changing) == BuildReport(failure=failure)
    deleting = Changing(local, lambda: local.delete("models", ["job/out"]))
    assert build(objects=deleting) == BuildReport(failure=failure)


def test_a_store_of_the_same_objects_is_used_again(put, build, home) -> None:
    put("job/out", b"a,1\n")
    first = build()
    again = replace(REQUEST, file="e.b.0.db", existing=("missing.db", "d.a.0.db"))
    assert build(again, now=9.0) == first
    folder = home.offline_results
    assert (folder / "e.b.0.db").samefile(folder / "d.a.0.db")
    # Where a request has its key makes no difference to the store.
    results = replace(REQUEST.results, request_key="5")
    build(replace(again, file="f.b.0.db", results=results))
    assert (folder / "f.b.0.db").samefile(folder / "d.a.0.db")


@pytest.mark.parametrize("change", ["object", "answer"])
def test_a_store_of_other_objects_or_answers_is_not(put, build, home, change: str) -> None:
    put("job/out", b"a,1\n")
    assert isinstance(build().info, StoreInfo)
    other = replace(REQUEST, file="d.a.1.db", existing=("d.a.0.db",))
    if change == "object":
        put("job/out", b"a,2\n")
    else:
        other = replace(other, results=replace(other.results, answer="line"))
    build(other)
    assert answers(home, b"a", file="d.a.1.db") == [b"2" if change == "object" else b"a,1"]
    assert answers(home, b"a") == [b"1"]
