"""The tree of errors at the top of the module."""

import re

from sagehen.base import errors


def test_the_drawing_shows_every_error_below_its_base() -> None:
    drawn: dict[str, str] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.fullmatch(r"((?:│   |    |├── |└── )*)(\w+)", line)
        if found:
            depth = len(found[1]) // 4
            branch[depth:] = [found[2]]
            if depth:
                drawn[found[2]] = branch[depth - 1]
    bases = {
        name: getattr(errors, name).__base__.__name__
        for name in errors.__all__
        if name != "SagehenError"
    }
    assert drawn == bases
