"""What the documents point at is there: links, and the files that the map names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT, "*/README.md"))
    for path in folder.glob(pattern)
    if not path.relative_to(ROOT).parts[0].startswith(".")
)
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
SOURCE_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document):
    for target in LINK.findall((ROOT / document).read_text()):
        if not target.startswith(("http://", "https://", "#")):
            place = (ROOT / document).parent / target.partition("#")[0]
            assert place.exists(), f"{document} links to {target}"


def test_the_map_names_files_that_exist():
    named = SOURCE_FILE.findall((ROOT / "docs" / "map.md").read_text())
    assert len(named) > 30
    missing = [name for name in named if not (ROOT / "src" / "sagehen" / name).is_file()]
    assert not missing


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = LINK.findall((folder / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in folder.glob("0*.md"))
