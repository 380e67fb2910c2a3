"""The README's quick start runs as it is pasted, and its words on installing are the only ones."""

import re
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from support.server import clean_environment, eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "first_endpoint.py"
INSTALL = ["python3 -m venv .venv && . .venv/bin/activate", 'pip install ".[xgboost,sklearn]"']


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


@pytest.fixture
def clone(short_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with what the README needs of an installed clone, and an environment for shells."""
    folder = short_path / "clone"
    folder.mkdir()
    (folder / "examples").symlink_to(EXAMPLE.parent)
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    bin_folder = Path(sys.executable).parent
    (scripts / "activate").write_text(f'export PATH="{bin_folder}:$PATH"\n')
    environment = clean_environment() | {"HOME": str(short_path / "user"), "SAGEHEN_PORT": "0"}
    (short_path / "user").mkdir()
    return folder, environment


def test_the_quick_start_runs_as_pasted(clone: tuple[Path, dict[str, str]]) -> None:
    folder, environment = clone
    first, second = blocks("sh")
    *install, up = commands(first)
    assert install == INSTALL  # make test-pythons runs these
    printed = folder / "up.log"
    with printed.open("w") as output:
        server = subprocess.Popen(
            ["bash", "-c", f"{commands(second)[0]} && exec {up}"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: "is ready at" in printed.read_text(), 120)
        shell = subprocess.run(
            ["bash", "-c", second],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert shell.stdout == "b'[0]'\n", shell.stderr
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 0, printed.read_text()


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
