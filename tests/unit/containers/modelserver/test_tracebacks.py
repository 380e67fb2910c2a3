"""Tracebacks that begin where the user's code does."""

import importlib
import json

from sagehen.containers.modelserver.adapters.shared.model_file import load_file
from sagehen.containers.modelserver.tracebacks import raised_at_import, user_traceback


def raised(function):
    try:
        function()
    except Exception as problem:
        return problem
    raise AssertionError("it did not raise")


def test_our_own_frames_come_off(tmp_path) -> None:
    def user_code(path):
        return json.loads(path.read_text())

    path = tmp_path / "model.json"
    path.write_text("{")
    problem = raised(lambda: load_file(user_code, path)).__cause__
    text = user_traceback(problem)
    assert "in load_file" not in text
    assert text.index("in user_code") < text.index("JSONDecodeError")


def test_what_is_ours_alone_is_whole(tmp_path) -> None:
    problem = raised(lambda: load_file(lambda path: path.read_text(), tmp_path / "none"))
    problem.__traceback__ = problem.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
    assert "in load_file" in user_traceback(problem)


def test_own_frames_between_the_users_come_off_too(tmp_path) -> None:
    def outer(path):
        load_file(lambda _: json.loads("{"), path)

    text = user_traceback(raised(lambda: load_file(outer, tmp_path)))
    assert "in outer" in text
    assert "in load_file" not in text
    assert "JSONDecodeError" in text, "the cause is told as well"


def test_an_error_at_import_is_told_from_one_of_a_call(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_module.py").write_text("raise RuntimeError")
    (tmp_path / "odd_module.py").write_text("def (")
    (tmp_path / "calling_module.py").write_text("def call(path): raise RuntimeError")
    for name in ("raising_module", "odd_module"):
        assert raised_at_import(raised(lambda name=name: importlib.import_module(name)))
    call = importlib.import_module("calling_module").call
    problem = raised(lambda: load_file(call, tmp_path)).__cause__
    assert not raised_at_import(problem)
