"""Processes that this one has started, as they come and go."""

import contextlib

import psutil

__all__ = ["children_with"]


def children_with(word: str, of: int | None = None) -> list[psutil.Process]:
    """Those below process `of`, by default this one, that run and have that word in their command.

    Others may end, or wait to be noticed, while they are looked at.
    """
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(of).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if word in one.cmdline():
                    found.append(one)
    return found
