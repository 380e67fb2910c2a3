"""Says why a model did not load, and whether another start may help."""

from collections.abc import Iterator
from dataclasses import dataclass

from sagehen.base.errors import SagehenError
from sagehen.base.user_code_errors import describe_exception
from sagehen.containers.modelserver.tracebacks import raised_at_import, user_traceback

__all__ = ["LoadFailure", "describe_load_failure"]

_REQUIREMENTS = "code/requirements.txt"
_SUMMARY_CHARACTERS = 800
_MISSING_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_OF_THE_MODEL = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError),
    *(NameError, SyntaxError, TypeError, ValueError),
)
_NAMES_OF_THE_MODEL = frozenset(
    {"HuggingFaceError", "MissingFunction", "ModelFileError", "PickleError", "ScriptError"}
)
"""classes that this module cannot import: they are slow to import, or import this module"""


@dataclass(frozen=True)
class LoadFailure:
    summary: str
    """one line, which the platform quotes"""
    lines: str
    """the user's traceback; "" for an error that explains itself"""
    permanent: bool
    """another start would not help"""


def describe_load_failure(error: BaseException) -> LoadFailure:
    if isinstance(error, SagehenError):
        return LoadFailure(_one_line(str(error)), "", _is_permanent(error))
    lines = user_traceback(error)
    summary = describe_exception(
        _one_line(_name_and_text(error)), lines.splitlines(), _REQUIREMENTS
    )
    return LoadFailure(summary, lines, _is_permanent(error))


def _is_permanent(error: BaseException) -> bool:
    """Whether the model or its code is at fault, and not a network, disk, device or the time."""
    if any(_may_pass(each) for each in _chain(error)):
        return False
    if isinstance(error, (*_OF_THE_MODEL, *_MISSING_FILE)):
        return True
    names = {each.__name__ for each in type(error).__mro__}
    return not names.isdisjoint(_NAMES_OF_THE_MODEL) or raised_at_import(error)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and type(error) not in _MISSING_FILE
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """HTTP clients put their own exceptions on top of the connection's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _name_and_text(error: BaseException) -> str:
    """As the last line of a traceback."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{name}: {text}" if text else name


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARACTERS else line[: _SUMMARY_CHARACTERS - 1] + "…"
