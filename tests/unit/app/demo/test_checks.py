import io

import numpy as np
from rich.console import Console

from sagehen.app.demo.story import Checks


def test_equal_answers_are_sound():
    checks = Checks(Console(file=io.StringIO()))
    checks.same("a.tar.gz", np.array([1.5], np.float32), np.array([1.5], np.float32))
    assert checks.sound
    assert checks.made == 1


def test_a_wrong_answer_is_a_fault_and_is_printed():
    output = io.StringIO()
    checks = Checks(Console(file=output, width=200))
    checks.same("a.tar.gz", np.array([1.5], np.float32), np.array([1.25], np.float32))
    assert not checks.sound
    assert "a.tar.gz answered [1.5], but the model itself says [1.25]." in output.getvalue()


def test_an_answer_of_another_length_is_a_fault():
    checks = Checks(Console(file=io.StringIO()))
    checks.same("a.tar.gz", np.array([], np.float32), np.array([1.25], np.float32))
    assert not checks.sound
