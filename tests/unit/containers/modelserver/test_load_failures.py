import pickle

import pytest

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.script.handlers import MissingFunction
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.load_failures import describe_load_failure


def raised(error: Exception, cause: Exception | None = None) -> BaseException:
    try:
        raise error from cause
    except Exception as caught:
        return caught


class OwnValueError(ValueError):
    pass


class RequestError(OSError, ValueError):
    """As HTTP clients have them."""


@pytest.mark.parametrize(
    ("error", "cause", "permanent"),
    [
        (ValueError("bad"), None, True),
        (OwnValueError("bad"), None, True),
        (pickle.UnpicklingError("cut off"), None, True),
        (FileNotFoundError(2, "No such file", "weights.bin"), None, True),
        (MissingFunction("predict_fn"), None, True),
        (ModelFileError("no model"), ValueError("odd"), True),
        (ModelFileError("no model"), OSError(5, "Input/output error"), False),
        (ValueError("bad"), ConnectionRefusedError(), False),
        (RequestError("away"), None, False),
        (TimeoutError("late"), None, False),
        (MemoryError("no room"), None, False),
        (RuntimeError("device is busy"), None, False),
        (SagehenError("The Hub does not answer."), None, False),
    ],
)
def test_only_the_models_own_faults_are_permanent(
    error: Exception, cause: Exception | None, permanent: bool
) -> None:
    assert describe_load_failure(raised(error, cause)).permanent is permanent


def test_a_chain_that_is_a_circle_ends() -> None:
    first, second = RuntimeError("one"), RuntimeError("two")
    first.__context__, second.__context__ = second, first
    assert not describe_load_failure(first).permanent


def test_the_summary_is_one_short_line() -> None:
    failure = describe_load_failure(raised(OwnValueError("a\n  b " + "x" * 5000)))
    assert failure.summary.startswith(f"{__name__}.OwnValueError: a b xxx")
    assert len(failure.summary) < 900
    assert describe_load_failure(raised(KeyError())).summary.startswith("KeyError (test_load_")


def test_an_error_that_explains_itself_has_no_traceback() -> None:
    failure = describe_load_failure(raised(MissingFunction("predict_fn")))
    assert failure.lines == ""
    assert failure.summary.startswith("Please provide a predict_fn implementation.")
