"""What the documents name is there: packages, layers, files, commands with options, targets."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sagehen.app.cli import app

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sagehen"
ADAPTERS = SOURCE / "containers" / "modelserver" / "adapters"
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md", "deploy/**/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.name != "CHANGELOG.md"
)
FOR_CONTRIBUTORS = [
    path
    for path in DOCUMENTS
    if path.as_posix()
    in {"CONTRIBUTING.md", "docs/map.md", "docs/glossary.md", "docs/howto/add-an-adapter.md"}
]
PATH = re.compile(r"`((?:[a-z_0-9]+/)*(?:[a-z_0-9]+\.py|[a-z_0-9]+/))`")
REPOSITORY_PATH = re.compile(
    r"(?<![\w./-])((?:src|docs|tests|scripts|deploy|examples|benchmarks)/[\w./-]*\w/?)"
)
COMMAND = re.compile(
    r"(?:^|[`|(&;] *|exec |\bbin/)sagehen ((?:--?[a-z][\w-]*|[a-z][\w-]*)[^`|;&#\n]*)", re.M
)


def packages() -> list[str]:
    tops = [path.parent for path in SOURCE.glob("*/__init__.py")]
    services = [path.parent for path in (SOURCE / "services").glob("*/__init__.py")]
    return sorted(
        f"{path.relative_to(SOURCE)}/" for path in tops + services if path.name != "services"
    )


@pytest.mark.parametrize("package", packages())
def test_each_package_is_in_the_maps_table(package: str) -> None:
    rows = re.findall(r"^\| `([\w/]+/)` \|", (ROOT / "docs" / "map.md").read_text(), re.M)
    assert any(row.startswith(package) for row in rows)


def test_the_layers_shown_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    checked = [
        {name.removeprefix("sagehen.") for name in layer.split(" | ")}
        for layer in contracts["contracts"][0]["layers"]
    ]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    picture = re.search(r"^    app .*?^    base$", text, re.M | re.S)
    assert picture
    lines = [re.split(r" {3,}", line.strip())[0] for line in picture[0].splitlines()]
    shown = [{name.replace("…", "services.") for name in line.split(" · ")} for line in lines]
    assert shown == checked


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS, ids=str)
def test_files_of_the_source_exist(document: Path) -> None:
    named, missing = 0, []
    for line in (ROOT / document).read_text().splitlines():
        row = re.match(r"\| `([\w/]+/)` \|", line)  # a package's row names its folders
        folder = SOURCE / row[1] if row else ADAPTERS if document.stem == "add-an-adapter" else ROOT
        for name in PATH.findall(line):
            named += 1
            if not any((place / name).exists() for place in (folder, SOURCE, ROOT, ROOT / "tests")):
                missing.append(name)
    assert named
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_files_of_the_repository_exist(document: Path) -> None:
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "", (ROOT / document).read_text())
    named = REPOSITORY_PATH.findall(text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_readers_of_the_environment_are_those_named() -> None:
    reads = re.compile(r"os\.environ(\.get|\.pop|\.setdefault|\[)|= os\.environ\b|in os\.environ:")
    readers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "containers" and reads.search(path.read_text())
    }
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (item,) = re.findall(r"^- Settings come from the environment.*?(?=^- )", text, re.M | re.S)
    assert set(PATH.findall(item)) == readers


def commands() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for line in COMMAND.findall((ROOT / document).read_text()):
            yield str(document), line.strip()


def test_each_command_exists_with_its_options() -> None:
    wrong = [(page, line) for page, line in commands() if not is_known(line)]
    assert not wrong
    assert len(list(commands())) > 100


def is_known(line: str) -> bool:
    """Whether the words lead to a command, and each option is one of its own."""
    command: Any = typer.main.get_command(app)
    words = line.replace("…", " ").split()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0).strip(",.:)\"'")
        if name not in command.commands:
            return False
        command = command.commands[name]
    options = {"--help", "-h"}
    for parameter in command.params:
        options |= {*parameter.opts, *parameter.secondary_opts}
    used = [re.match(r"-[\w-]+", word.strip("[]\"'")) for word in words]
    return {match[0] for match in used if match} <= options


def test_each_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {
        target
        for document in DOCUMENTS
        for target in re.findall(r"(?:`|^ {4})make ([\w-]+)", (ROOT / document).read_text(), re.M)
    }
    assert {"test", "demo"} <= named
    assert named <= targets


@pytest.mark.parametrize("page", ["docs/reference/durability.md", "docs/robustness.md"])
def test_the_tests_that_a_claim_names_exist(page: str) -> None:
    named = re.findall(r"\b(?:unit|faults|system|boto)/[\w/]+(?:\.py)?", (ROOT / page).read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []
