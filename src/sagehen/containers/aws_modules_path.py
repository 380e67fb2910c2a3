"""Where the stand-ins for modules of AWS's images are, for users' scripts only."""

import os
import sys

__all__ = ["FOLDER", "MODEL_BUILDER_FOLDER", "add_aws_modules"]

_HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(_HERE, "aws_modules")
MODEL_BUILDER_FOLDER = os.path.join(_HERE, "model_builder_modules")
"""of scripts that the SDK's ModelBuilder has generated"""


def add_aws_modules() -> None:
    """Puts them behind everything that is installed."""
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
