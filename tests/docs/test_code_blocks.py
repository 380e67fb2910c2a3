"""The Python of each guide is Python and defines its names; blocks are no part of a sentence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
GUIDES = sorted(path.name for path in HOWTO.glob("*.md") if "```python" in path.read_text())


@pytest.mark.parametrize("guide", GUIDES)
def test_every_name_in_a_guide_is_defined_in_it(guide: str) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (HOWTO / guide).read_text(), re.DOTALL | re.MULTILINE
    )
    # A dictionary's entry alone, as in "add this to the container", is an expression in braces.
    code = "\n".join(
        "{" + block + "}" if re.match(r'"\w+": ', block) else block for block in blocks
    )
    ruff = Path(sys.executable).with_name("ruff")
    found = subprocess.run(
        [
            ruff,
            "check",
            "--isolated",
            "--select",
            "F821,F822,E9",
            "--output-format",
            "concise",
            "-",
        ],
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("page", sorted(HOWTO.parent.rglob("*.md")), ids=lambda page: page.name)
def test_a_sentence_does_not_begin_with_a_block(page: Path) -> None:
    """A block of commands is no subject: what it does stands in a sentence before it."""
    text = re.sub(r"^```.*?^```$", "    block", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^    .*\n\n([a-z].*)$", text, re.MULTILINE)
