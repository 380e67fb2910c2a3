import re
import tomllib
from pathlib import Path

import pytest

from sagehen.base.extras import EXTRAS, missing_library, pip_install

OF_SCRIPTS = "cloudpickle>=2.2"
"""of what ModelBuilder generates; no adapter needs it"""
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def requirements(extra: str) -> set[str]:
    """Those of pyproject.toml, where an extra may name others: `sagehen[xgboost,sklearn]`."""
    found = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"sagehen\[(.+)\]", requirement):
            for other in own[1].split(","):
                found |= requirements(other)
        else:
            found.add(requirement)
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_error_tells_to_install_is_what_the_extra_installs(extra):
    assert set(EXTRAS[extra]) == requirements(extra) - {OF_SCRIPTS}


def test_every_extra_can_be_told():
    assert {*EXTRAS, "all-adapters"} == set(PROJECT["optional-dependencies"])


def test_the_sentence_says_what_is_missing_where_and_the_command():
    assert str(missing_library("XGBoost", "xgboost")) == (
        "XGBoost is not installed. In the Python environment that Sagehen runs in: "
        "pip install 'xgboost-cpu>=3.0.5,<3.1' 'scikit-learn>=1.5,<1.8' 'pandas>=2.2.3,<3'"
    )


def test_torch_comes_with_the_way_around_cuda():
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in pip_install("huggingface")
    assert "--extra-index-url" not in pip_install("xgboost")
