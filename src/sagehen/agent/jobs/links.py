"""Where links of a container lead, seen from outside of it."""

import os
from pathlib import Path

__all__ = ["resolve"]

OPT_ML = "/opt/ml/"


def resolve(link: Path, base: Path) -> str | None:
    """The real path of what a link leads to; None where there is nothing. Blocks.

    Args:
        base: what the container sees as /opt/ml.
    """
    try:
        said = os.readlink(link)
        if said.startswith(OPT_ML):
            said = str(base / said.removeprefix(OPT_ML))
        return os.path.realpath(link.parent / said, strict=True)
    except OSError:
        return None
