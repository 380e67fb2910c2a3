"""The page of the container's contract has the variables that the code knows, and its defaults."""

import ast
import re
from pathlib import Path

import pytest

from sagehen.containers.modelserver.environment import read_environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "container-contract.md").read_text()
SOURCES = [
    path
    for folder in ("agent", "containers")
    for path in (ROOT / "src" / "sagehen" / folder).rglob("*.py")
    if not {"jobs", "training_toolkit"} & set(path.parts)  # They have a page of their own.
]
VARIABLE = re.compile(r"(SAGEMAKER|SAGEHEN|SM)_([A-Z]+_)*[A-Z]+|MAX_CONTENT_LENGTH")
PUT_TOGETHER = {"SAGEMAKER_TS_BATCH_SIZE", "SAGEMAKER_TS_MAX_BATCH_DELAY"}
"""Of a prefix and a name: no string of the code is one of them."""


def section(title: str) -> str:
    """Its text, up to the next of the same depth."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    """The variables in backticks that begin a row of a table, or stand in its text."""
    return {name for name in re.findall(r"`([A-Z_]+)`", text) if VARIABLE.fullmatch(name)}


READ = section("Variables that our model server reads")
UNREAD = {
    name
    for row in section("Variables of SageMaker's containers that nothing reads").splitlines()
    for name in named(row.partition(" | ")[0])
}


def in_code() -> set[str]:
    """Every string of the agent's and the model server's code that is a variable's name."""
    return {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and VARIABLE.fullmatch(node.value)
    }


def test_each_variable_of_the_code_has_a_row_and_no_other_has():
    told = named(section("Variables that a container is given")) | named(READ)
    assert len(told) > 20
    assert told == in_code() | PUT_TOGETHER


def test_what_nothing_reads_is_nowhere_in_the_code():
    assert len(UNREAD) > 3
    assert not UNREAD & in_code()


EMPTY = read_environment({})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAGEMAKER_BASE_DIR", EMPTY.base_dir),
        ("SAGEMAKER_BIND_TO_PORT", EMPTY.bind.port),
        ("SAGEMAKER_PROGRAM", EMPTY.program),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT", int(EMPTY.timeout_seconds)),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", EMPTY.max_body_bytes >> 20),
        ("SAGEMAKER_CONTAINER_LOG_LEVEL", EMPTY.log_level),
        ("SAGEMAKER_INFERENCE_ENSEMBLE", str(EMPTY.ensemble).lower()),
        ("SAGEMAKER_MULTI_MODEL", str(EMPTY.multi_model).lower()),
        ("SAGEHEN_ADAPTER", EMPTY.adapter),
    ],
)
def test_a_default_is_the_code_s(variable, value):
    rows = [row for row in READ.splitlines() if row.startswith(f"| `{variable}` |")]
    assert [row.split(" | ")[1] for row in rows] == [f"`{value}`"]
