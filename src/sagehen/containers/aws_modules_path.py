"""Where the stand-ins for modules of AWS's images are, for users' scripts only."""

import os
import sys

__all__ = ["FOLDER", "add_aws_modules"]

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "aws_modules")


def add_aws_modules() -> None:
    """Puts them behind everything that is installed."""
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
