"""News fragments: their names and their form, and the section that is made of them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGMENTS = ROOT / "changelog.d"


def kinds() -> list[str]:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [kind["directory"] for kind in configuration["tool"]["towncrier"]["type"]]


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a fragment."""
    found = []
    if not re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(kinds())})\.md", name):
        found.append(f"the name is not +words-of-the-change.KIND.md, with KIND of {kinds()}")
    if not re.fullmatch(r"[^\s*-].*[.:)]\n", text, re.DOTALL) or "\n\n" in text:
        found.append("it is not one paragraph of full sentences, without a bullet")
    if any(len(line) > 120 for line in text.splitlines()):
        found.append("a line is longer than 120 characters")
    return found


def test_every_fragment_has_the_form() -> None:
    files = [path for path in FRAGMENTS.iterdir() if path.name != "README.md"]
    wrong = {path.name: faults(path.name, path.read_text()) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("words.added.md", "A sentence.\n"),
        ("+words.news.md", "A sentence.\n"),
        ("+Words.added.md", "A sentence.\n"),
        ("+words.added.md", "- A sentence.\n"),
        ("+words.added.md", "No end\n"),
        ("+words.added.md", "A sentence."),
        ("+words.added.md", "One.\n\nTwo.\n"),
        ("+words.added.md", "x" * 121 + ".\n"),
    ],
)
def test_other_forms_are_found(name: str, text: str) -> None:
    assert faults("+words.added.md", "A sentence.\n") == []
    assert faults(name, text)


def test_a_release_moves_the_fragments_into_the_changelog(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    shutil.copy(FRAGMENTS / "README.md", folder)
    (folder / "+first.added.md").write_text("A first thing.\n")
    (folder / "+second.fixed.md").write_text("A second thing.\n")
    command = [sys.executable, "-m", "towncrier", "build", "--keep", "--version", "9.8"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    _, _, news = (tmp_path / "CHANGELOG.md").read_text().partition("releases below this line -->")
    assert re.match(
        r"\s+## \[9\.8\] - [0-9-]+"
        r"\s+### Added\s+- A first thing\.\s+### Fixed\s+- A second thing\.",
        news,
    )
    assert news.index("[9.8]") < news.index("[Unreleased]")
