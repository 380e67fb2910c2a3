"""Every guide can be pasted: its blocks run as printed, in order, in a home without anything."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sagehen.base.config import load_settings
from support.guides import ROOT, UP, Block, Reader, read_blocks

PAGES = [*sorted((ROOT / "docs" / "howto").glob("*.md")), ROOT / "README.md"]
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
OWN_SERVER = {"backup.md", "troubleshooting.md", "upgrade.md"}
"""Guides that replace or remove the home of a server that runs."""
MOST_NOT_RUN = 43
"""of blocks; lower it when one runs that did not"""


@pytest.fixture(scope="module")
def shared_reader() -> Iterator[Reader]:
    """Their server runs, as each guide but the first says one does."""
    reader = Reader()
    try:
        reader.start_server("sagehen up", reader.clone("server"))
        yield reader
    finally:
        reader.close()


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.close()


def runs(page: Path) -> list[Block]:
    return [block for block in read_blocks(page) if block.runs]


def starts_server(page: Path) -> bool:
    """Or writes the settings of one that is to be started."""
    return any(block.file.startswith("~/") for block in read_blocks(page)) or any(
        re.search(UP.pattern, block.text, re.MULTILINE) for block in runs(page)
    )


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.stem)
def test_a_guide_runs_as_printed(page: Path, request: pytest.FixtureRequest) -> None:
    own = page.name in OWN_SERVER or starts_server(page)
    reader = request.getfixturevalue("reader" if own else "shared_reader")
    if page.name in OWN_SERVER:
        reader.start_server("sagehen up", reader.clone("server"))
    reader.read(page, server_runs=not own or page.name in OWN_SERVER)


def test_what_does_not_run_has_a_reason_and_does_not_grow_unseen() -> None:
    not_run = [block for block in BLOCKS if block.not_run]
    assert len(not_run) <= MOST_NOT_RUN, [block.name for block in not_run]
    assert all(len(block.not_run.split()) > 1 for block in not_run)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_guide_is_fenced_and_has_a_language(page: Path) -> None:
    text = re.sub(r"^```\w+\n.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert "```" not in text
    assert not re.search(r"\n\n    \S.*", text)


def name(block: Block) -> str:
    return block.name


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.file], ids=name)
def test_the_text_names_the_file_that_a_block_is(block: Block) -> None:
    (page,) = [page for page in PAGES if page.name == block.page]
    before = "\n".join(page.read_text().splitlines()[: block.line - 1]).rstrip()
    said = before.rpartition("\n\n")[2] + block.text.partition("\n")[0]
    assert Path(block.file).name in said


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "toml"], ids=name)
def test_settings_that_a_guide_shows_are_settings(block: Block, tmp_path: Path) -> None:
    (tmp_path / "sagehen.toml").write_text(block.text)
    load_settings(tmp_path / "sagehen.toml")


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=name)
def test_yaml_that_a_guide_shows_is_yaml(block: Block) -> None:
    assert yaml.compose(block.text)
