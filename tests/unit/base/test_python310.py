"""What runs in containers uses nothing that Python 3.10 lacks: old images need it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sagehen

SOURCE = Path(sagehen.__file__).parents[1]
OWN = "sagehen.base.python310"
ROOTS = ("sagehen.containers.modelserver", "sagehen.containers.training_toolkit")
NEW_IN_3_11 = {
    "ExceptionGroup",
    "LiteralString",
    "Runner",
    "Self",
    "StrEnum",
    "TaskGroup",
    "UTC",
    "add_note",
    "assert_never",
    "file_digest",
    "getLevelNamesMapping",
    "timeout",
}
MODULES = {"asyncio", "datetime", "enum", "hashlib", "logging", "typing"}


def file_of(module: str) -> Path | None:
    path = SOURCE / Path(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def container_modules() -> dict[str, ast.Module]:
    """All that the containers' programs import, also late."""
    waiting = [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for root in ROOTS
        for path in (SOURCE / Path(*root.split("."))).rglob("*.py")
    ]
    parsed: dict[str, ast.Module] = {}
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if module in parsed or file is None:
            continue
        parsed[module] = ast.parse(file.read_text(), feature_version=(3, 10))
        waiting += [name for name in imported(parsed[module]) if name.startswith("sagehen.")]
    return parsed


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def new_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in MODULES and node.attr in NEW_IN_3_11:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield from (f"{node.module}.{n.name}" for n in node.names if n.name in NEW_IN_3_11)


def test_containers_use_nothing_of_python_3_11():
    modules = container_modules()
    assert OWN in modules
    assert "sagehen.http1.server" in modules
    found = {name: list(new_names(tree)) for name, tree in modules.items() if name != OWN}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("text", ["import asyncio\nasyncio.timeout(1)", "from enum import StrEnum"])
def test_new_names_are_found(text):
    assert list(new_names(ast.parse(text)))
