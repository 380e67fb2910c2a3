"""The page of a training container's contract has the variables that the code knows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "training-container.md").read_text()
SOURCES = [
    path
    for folder in ("agent/jobs", "containers/training_toolkit")
    for path in (ROOT / "src" / "sagehen" / folder).rglob("*.py")
]
VARIABLE = re.compile(r"(SAGEMAKER|SAGEHEN|AWS|TRAINING_JOB)_([A-Z]+_)*[A-Z]+")


def test_each_variable_of_the_code_is_on_the_page():
    in_code = {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and VARIABLE.fullmatch(node.value)
    }
    assert len(in_code) > 15
    assert in_code <= set(re.findall(r"`([A-Z_]+)`", PAGE))
