"""The Python of each guide is Python, and uses no name that the page does not define."""

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
