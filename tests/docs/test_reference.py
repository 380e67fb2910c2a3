"""The docs that are made from the code say what the code says."""

import runpy
from pathlib import Path

import botocore
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


@pytest.mark.parametrize("name", SCRIPT["PAGES"])
def test_page_is_what_the_code_says(name):
    page = (ROOT / "docs" / name).read_text()
    if "in botocore " in page and f"in botocore {botocore.__version__}." not in page:
        pytest.skip("the page is of another botocore, whose operations may be others")
    assert page == SCRIPT["PAGES"][name](page), "run: python scripts/reference.py"
