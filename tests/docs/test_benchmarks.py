"""The figures on the first page of benchmarks are those of the kept runs that it links to."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = (FOLDER / "README.md").read_text()
ROWS = [
    [cell.strip() for cell in row.split("|")[1:-1]]
    for row in re.findall(r"^\|.*\(results/.*\|$", PAGE[: PAGE.index("## Run them")], re.MULTILINE)
]
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_figures_are_of_the_linked_run(row):
    _, own, other, machine, date, link = row
    (path,) = re.findall(r"\((results/.*?)\)", link)
    assert date in path
    text = (FOLDER / path).read_text()
    numbers = {number.replace(",", "") for number in NUMBER.findall(text)}
    for number in NUMBER.findall(f"{own} {other}"):
        assert number.replace(",", "") in numbers, f"{number} is not in {path}"
    described = re.search(rf"^\| {machine} \| (AMD EPYC|Intel)", PAGE, re.MULTILINE)
    assert described
    assert described[1] in text


def test_the_newest_run_of_the_first_comparison_comes_first():
    newest = max(FOLDER.glob("results/*-peers.md"))
    assert len(ROWS) > 15
    assert newest.name in ROWS[0][-1]
