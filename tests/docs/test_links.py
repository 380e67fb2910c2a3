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
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            place = (ROOT / document).parent / path if path else ROOT / document
            assert place.exists(), f"{document} links to {target}"
            if anchor:
                assert anchor in anchors(place), f"{document} links to {target}"


def anchors(document: Path) -> set[str]:
    """What a link can jump to: headings in lower case, with `-` for spaces, without punctuation."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize(
    ("index", "folder"),
    [
        ("README.md", "howto"),
        ("README.md", "reference"),
        ("compatibility/README.md", "compatibility"),
    ],
)
def test_every_page_is_in_the_index(index, folder):
    page = ROOT / "docs" / index
    listed = {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}
    pages = {path.resolve() for path in (ROOT / "docs" / folder).glob("*.md")} - {page.resolve()}
    assert pages
    assert pages <= listed


def test_the_map_names_files_that_exist():
    named = SOURCE_FILE.findall((ROOT / "docs" / "map.md").read_text())
    assert len(named) > 30
    missing = [name for name in named if not (ROOT / "src" / "sagehen" / name).is_file()]
    assert not missing


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = LINK.findall((folder / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in folder.glob("0*.md"))
