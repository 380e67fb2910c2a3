"""Tracebacks that begin where the user's code does."""

import json

from sagehen.containers.modelserver.adapters.shared.model_file import load_file
from sagehen.containers.modelserver.tracebacks import user_traceback


def raised(function) -> Exception:
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
