"""Logs once which other scikit-learn a pickle names, and keeps it for the failure it may cause."""

import logging
import re
import threading
import warnings
from typing import Any, Final

__all__ = ["other_version", "watch_saved_versions"]

# The text of scikit-learn's InconsistentVersionWarning, whose import takes a second, and of the
# UserWarning before 1.3.
_TEXT: Final = re.compile(
    r"Trying to unpickle estimator \S+ from version (\S+) when using version (\S+?)\.? "
)

log = logging.getLogger(__name__)

_found = threading.local()
_logged: set[tuple[str, str]] = set()


def watch_saved_versions() -> None:
    """Replaces scikit-learn's warnings, one for each class, by one line for each version."""
    if getattr(warnings.showwarning, "__module__", "") != __name__:
        _Watch(warnings.showwarning).install()


def other_version() -> str:
    """Says which versions this thread's last pickle named, or ""; forgets it."""
    text = getattr(_found, "text", "")
    _found.text = ""
    return text


class _Watch:
    def __init__(self, show: Any) -> None:
        self._show = show

    def install(self) -> None:
        def show(message: Warning | str, *arguments: Any, **options: Any) -> None:
            match = _TEXT.search(str(message))
            if match is None:
                self._show(message, *arguments, **options)
            else:
                _note(match[1], match[2])

        warnings.showwarning = show
        # Not only the first of a text: each thread's model must be told its own.
        warnings.filterwarnings("always", message="Trying to unpickle estimator")


def _note(saved: str, installed: str) -> None:
    _found.text = (
        f"The model was saved with scikit-learn {saved}, and {installed} is installed here"
    )
    if (saved, installed) not in _logged:
        _logged.add((saved, installed))
        log.warning(
            '%s: it may fail or predict differently. image_versions = "match" runs the version '
            "that the image's tag names.",
            _found.text,
        )
