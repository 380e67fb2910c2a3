"""The README shows the example that runs, and its words on installing are the only ones."""

import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "first_endpoint.py"
INSTALL = ["python3 -m venv .venv && . .venv/bin/activate", 'pip install ".[xgboost,sklearn]"']


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


def test_it_is_installed_as_make_test_pythons_does() -> None:
    assert commands(blocks("sh")[0])[:2] == INSTALL


def test_the_example_shown_is_the_one_that_runs() -> None:
    assert blocks("python") == [EXAMPLE.read_text()]


def test_nothing_tells_to_install_sagehen_from_an_index() -> None:
    """It is on none: the name would bring somebody else's package."""
    said = re.compile(r"pip install[^\n`]*[ '\"]sagehen\b")
    places = [ROOT.glob("*.md")]
    for folder, pattern in (
        ("docs", "*.md"),
        ("src", "*.py"),
        ("examples", "*"),
        ("benchmarks", "*"),
    ):
        places.append((ROOT / folder).rglob(pattern))
    told = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in chain(*places)
        if path.suffix in {".md", ".py", ".sh"}
        for found in said.findall(path.read_text())
    ]
    assert told == []


def test_the_front_page_stays_short_and_names_both_commands() -> None:
    assert len(README.splitlines()) < 110
    for command in ("make demo", "make test"):
        assert f"**`{command}`**" in README


def test_the_speed_shown_is_of_the_newest_run_of_the_comparison() -> None:
    (speed,) = re.findall(r"^\*\*Speed\*\*.*?\n\n", README, re.MULTILINE | re.DOTALL)
    newest = max((ROOT / "benchmarks" / "results").glob("*-peers.md"))
    assert f"(benchmarks/results/{newest.name})" in speed
    run = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", newest.read_text())}
    shown = [int(number.replace(",", "")) for number in re.findall(r"\d+,\d+", speed)]
    assert len(shown) > 2
    # Rounded figures: to within 1 % of the run's.
    wrong = [each for each in shown if not any(abs(each - real) < 0.01 * each for real in run)]
    assert not wrong
