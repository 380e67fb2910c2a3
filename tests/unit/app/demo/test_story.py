import io

import numpy as np
from rich.console import Console

from support.frameworks import Late

story = Late("sagehen.app.demo.story")


def test_equal_answers_are_sound():
    checks = story.Checks(Console(file=io.StringIO()))
    checks.same("a.tar.gz", np.array([1.5], np.float32), np.array([1.5], np.float32))
    assert checks.sound
    assert checks.count == 1


def test_a_wrong_answer_is_a_fault_and_is_printed():
    output = io.StringIO()
    checks = story.Checks(Console(file=output, width=200))
    checks.same("a.tar.gz", np.array([1.5], np.float32), np.array([1.25], np.float32))
    assert not checks.sound
    assert "a.tar.gz answered [1.5], but the model itself says [1.25]." in output.getvalue()


def test_an_answer_of_another_length_is_a_fault():
    checks = story.Checks(Console(file=io.StringIO()))
    checks.same("a.tar.gz", np.array([], np.float32), np.array([1.25], np.float32))
    assert not checks.sound
