"""Requests are answered from offline results, if each of their rows has one."""

import logging

import pytest

from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.offline_results.store import StoreError, write_store
from sagehen.frame.routes import OfflineRoute
from sagehen.gateway.routing import offline_answers
from sagehen.gateway.routing.offline_answers import OfflineAnswers, OfflineStores

CSV_RESULTS = {b"7": b"0.5", b"8": b"0.8,b", b"a,b": b"0.9"}
JSON_RESULTS = {b"7": b'{"score":0.5}', b"8": b'{"score":0.8}'}
CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"
CSV_ANSWER = b"text/csv; charset=utf-8"


def answers(key: str = "0", request_key: str | None = None) -> OfflineAnswers:
    results = OfflineResults(source="s3://b/", key=key, request_key=request_key or key)
    return OfflineAnswers((CSV_RESULTS if results.is_csv else JSON_RESULTS).get, results)


@pytest.mark.parametrize(
    ("content_type", "body", "answer"),
    [
        (CSV, b"7,1,2", b"0.5\n"),
        (CSV, b"7,1,2\n", b"0.5\n"),
        ("text/csv; charset=utf-8", b"7", b"0.5\n"),
        ("TEXT/CSV", b"7", b"0.5\n"),
        ("", b"7,1", b"0.5\n"),
        ("application/octet-stream", b"7,1", b"0.5\n"),
        (CSV, b"7,1\r\n8,2\r\n\r\n7,3", b"0.5\n0.8,b\n0.5\n"),
        (CSV, b'"a,b",1', b"0.9\n"),
    ],
)
def test_rows_of_csv_get_lines(content_type: str, body: bytes, answer: bytes) -> None:
    assert answers().find(content_type, "", [body]) == (CSV_ANSWER, answer)


@pytest.mark.parametrize(
    ("content_type", "body", "answer"),
    [
        (JSON, b'{"id": 7, "x": 1}', (JSON.encode(), b'{"score":0.5}')),
        (JSON, b' [{"id": 8}, {"id": "7"}]', (JSON.encode(), b'[{"score":0.8},{"score":0.5}]')),
        (JSON, b'\n[\r\n\t{"id": 8}]', (JSON.encode(), b'[{"score":0.8}]')),
        ("", b'{"id": "7"}', (JSON.encode(), b'{"score":0.5}')),
        (LINES, b'{"id": 7}\n', (LINES.encode(), b'{"score":0.5}\n')),
        (LINES, b'{"id":7}\n\n{"id":8}', (LINES.encode(), b'{"score":0.5}\n{"score":0.8}\n')),
        ("application/x-ndjson", b'{"id":7}', (LINES.encode(), b'{"score":0.5}\n')),
    ],
)
def test_json_gets_json_of_its_form(content_type: str, body: bytes, answer) -> None:
    assert answers("id").find(content_type, "", [body]) == answer


def test_a_request_may_have_its_key_elsewhere_than_the_results() -> None:
    assert answers("0", "-1").find(CSV, "", [b"1,2,7"]) == (CSV_ANSWER, b"0.5\n")
    assert answers("0", "id").find(JSON, "", [b'[{"id":7}]']) == (CSV_ANSWER, b"0.5\n")
    assert answers("id", "1").find(CSV, "", [b"1,7"]) == (LINES.encode(), b'{"score":0.5}\n')


def test_a_body_may_come_in_pieces() -> None:
    assert answers().find(CSV, "", [b"7", b",1\n8", b",2"]) == (CSV_ANSWER, b"0.5\n0.8,b\n")


@pytest.mark.parametrize(
    ("key", "content_type", "body"),
    [
        ("0", CSV, b"9,1"),
        ("0", CSV, b"7,1\n9,1"),
        ("0", CSV, b""),
        ("0", CSV, b"\n"),
        ("2", CSV, b"7,1"),
        ("0", CSV, b'"7,1'),
        ("0", JSON, b"[7]"),
        ("id", JSON, b'{"id": 9}'),
        ("id", JSON, b'[{"id": 7}, {"id": 9}]'),
        ("id", JSON, b'[{"id": 7}, {}]'),
        ("id", JSON, b"[]"),
        ("id", JSON, b"{"),
        ("id", JSON, b'{"id": "\xff"}'),
        ("id", JSON, b'{"id": 7, "\xff": 1}'),
        ("id", JSON, b'[{"id": 7}, {"id": "\xff"}]'),
        ("id", LINES, b'{"id": 7, "\xff": 1}'),
        ("0", CSV, b"\xff,1"),
        ("id", JSON, b'[{"id": 7}'),
        ("id", JSON, b""),
        ("id", JSON, b"[" * 100_000),
        ("id", JSON, b'{"id":' * 100_000),
        ("id", LINES, b'{"id":' + b"[" * 100_000),
        ("id", LINES, b'{"id": 7}\nx'),
        ("id", CSV, b"7,1"),
    ],
)
def test_one_unknown_row_is_enough_for_no_answer(key: str, content_type: str, body: bytes) -> None:
    assert answers(key).find(content_type, "", [body]) is None


@pytest.mark.parametrize("accept", ["", "*/*", "text/*", CSV, "application/json, text/csv;q=0.5"])
def test_an_answer_has_a_type_that_the_caller_takes(accept: str) -> None:
    assert answers().find(CSV, accept, [b"7"])


@pytest.mark.parametrize("accept", [JSON, "application/*", "application/x-npy"])
def test_there_is_no_answer_in_another_type(accept: str) -> None:
    assert answers().find(CSV, accept, [b"7"]) is None


def test_the_rows_of_a_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_answers, "MAX_ROWS", 3)
    assert answers().find(CSV, "", [b"7\n" * 3])
    assert answers().find(CSV, "", [b"7\n" * 4]) is None
    assert answers().find(CSV, "", [b"7\n7\n7\n7"]) is None
    assert answers("id").find(LINES, "", [b'{"id":7}\n' * 3])
    assert answers("id").find(LINES, "", [b'{"id":7}\n' * 4]) is None
    assert answers("id").find(JSON, "", [b'[{"id":7}\n,{"id":8}\n,\n{"id":7}\n]\n'])
    assert answers("id").find(JSON, "", [b'[{"id":7},{"id":8},{"id":7},{"id":8}]']) is None


@pytest.mark.parametrize(("key", "form"), [("0", CSV), ("id", LINES)])
def test_megabytes_of_lines_are_not_looked_at(monkeypatch, key: str, form: str) -> None:
    """They would hold up all other requests."""

    def read(chunks):
        raise AssertionError("The lines are read.")

    monkeypatch.setattr(offline_answers, "lines", read)
    monkeypatch.setattr(offline_answers, "csv_rows", read)
    assert answers(key).find(form, "", [b"\n" * 2**20]) is None


def test_the_bytes_of_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_answers, "MAX_ANSWER_BYTES", 6)
    assert answers().find(CSV, "", [b"7\n7"])
    assert answers().find(CSV, "", [b"7\n7\n7"]) is None


def test_arrays_of_numbers_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(body):
        raise AssertionError("The numbers are read.")

    monkeypatch.setattr(offline_answers, "json_values", read)
    assert answers("id").find(JSON, "", [b"[" + b"0," * 2**20 + b"0]"]) is None
    assert answers("id").find(JSON, "", [b" [ [1, 2], [3, 4]]"]) is None


def test_a_broken_store_has_no_answers_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def get(key: bytes) -> bytes:
        raise StoreError("The store x.db cannot be read: disk I/O error")

    results = OfflineResults(source="s3://b/", key="0", request_key="0")
    with caplog.at_level(logging.ERROR):
        broken = OfflineAnswers(get, results)
        assert [broken.find(CSV, "", [b"7"]) for _ in range(3)] == [None] * 3
    assert caplog.text.count("x.db") == 1


def route(file: str) -> OfflineRoute:
    return OfflineRoute(
        file=file, results=OfflineResults(source="s3://b/", key="0", request_key="0")
    )


def test_stores_are_opened_once_and_forgotten_with_their_route(tmp_path) -> None:
    write_store(tmp_path / "d.v.0.db", [(b"7", b"old")], "f", 0.0)
    write_store(tmp_path / "d.v.1.db", [(b"7", b"new")], "g", 0.0)
    stores = OfflineStores(tmp_path)
    stores.update(iter([route("d.v.0.db")]))
    first = stores.get(route("d.v.0.db"))
    assert first is not None
    stores.update(iter([route("d.v.0.db"), route("d.v.1.db")]))
    assert stores.get(route("d.v.0.db")) is first
    stores.update(iter([route("d.v.1.db")]))
    assert stores.get(route("d.v.0.db")) is None
    second = stores.get(route("d.v.1.db"))
    assert second.find(CSV, "", [b"7"]).body == b"new\n"
    # Requests that were admitted before hold the old store.
    assert first.find(CSV, "", [b"7"]).body == b"old\n"
    assert stores.get(None) is None


def test_a_broken_store_is_tried_again_with_the_next_table(tmp_path, caplog) -> None:
    stores = OfflineStores(tmp_path)
    (tmp_path / "d.v.0.db").write_bytes(b"no store at all")
    stores.update(iter([route("d.v.0.db")]))
    assert stores.get(route("d.v.0.db")) is None
    assert "d.v.0.db cannot be read" in caplog.text
    write_store(tmp_path / "d.v.0.db", [(b"7", b"1")], "f", 0.0)
    stores.update(iter([route("d.v.0.db")]))
    assert stores.get(route("d.v.0.db")) is not None
