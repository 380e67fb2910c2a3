"""The process that others are forked from, of which Python has one for each that runs tests: it has
imported all that those need, whoever of them comes first.

What a fork does not import itself it still cannot name, and nothing has been computed in it yet.
"""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
from pathlib import Path
from unittest.mock import patch

__all__ = ["FORKING", "WARM", "be_warm"]

FORKING = multiprocessing.get_context("forkserver")

WARM = "support.warm_models"
_SCRIPTS = ["boto3", "xgboost", "sklearn.datasets", "sklearn.model_selection", "sagemaker"]
"""xgboost and scikit-learn bring numpy, scipy and pandas."""
_ROLES = ["sagehen.app.roles.agent", "sagehen.app.roles.control"]


@functools.cache
def be_warm() -> None:
    """Start it, before anything is forked. It does not look for modules where this process would
    (Python 3.11), and is silent of what it does not find; so it is told by the environment."""
    FORKING.set_forkserver_preload([__name__, *_SCRIPTS, *_ROLES, WARM])
    with patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
        multiprocessing.forkserver.ensure_running()
