"""The line with which the README installs Sagehen, in an empty environment: its libraries fit
together."""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from support.server import Server, clean_environment, eventually, run_to_its_end
from support.wheels import package_wheel

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PROGRAM = Path(__file__).with_name("fitted_models.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("INSTALL_FROM_INDEX"),
        reason="fetches 500 MB from the package index: set INSTALL_FROM_INDEX",
    ),
]


@pytest.fixture(params=["newest", "oldest"])
def installed(request, built):
    """The `bin` of an environment with the newest libraries that the README's extras allow, as pip
    chooses them, or with the oldest."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-", dir="/var/tmp"))  # 600 MB: not in memory
    extras = re.search(r'^pip install "\.\[(.*?)\]"', README, re.MULTILINE)[1]
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(lower_ends(extras)) if request.param == "oldest" else "")
    environment = clean_environment()
    run_to_its_end([sys.executable, "-m", "venv", str(folder)], environment)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-c", str(constraints)]
    run_to_its_end([*install, f"{package_wheel(built)}[{extras}]"], environment)
    yield folder / "bin"
    shutil.rmtree(folder)


def lower_ends(extras):
    """A constraint for each library of the extras: the oldest version that they allow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in extras.split(","):
        for requirement in project["optional-dependencies"][extra]:
            name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
            yield f"{name}=={version}\n"


def test_models_of_the_installed_libraries_can_be_saved_and_deployed(installed):
    home = Path(tempfile.mkdtemp(prefix="sgh-"))
    server = Server(home / "home", clean_environment(), program=(str(installed / "sagehen"),))
    try:
        server.start()
        printed = run_to_its_end([str(installed / "python"), str(PROGRAM)], server.env)
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
    assert printed.count("saved and deployed") == 3


def test_commands_run_as_printed_in_a_fresh_clone():
    """All of the README's, but `make test`, which would run this test."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-", dir="/var/tmp"))
    clone, log = folder / "clone", folder / "up.log"
    environment = clean_environment() | {"HOME": str(folder), "SAGEHEN_PORT": "0"}
    run_to_its_end(["git", "clone", "--quiet", str(ROOT), str(clone)], environment)
    first, second = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", "-e", "-c", first],
            cwd=clone,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: b"is ready at" in log.read_bytes() or server.poll() is not None, 900)
        assert server.poll() is None, log.read_text()
        run = functools.partial(subprocess.run, cwd=clone, env=environment, capture_output=True)
        shell = run(["bash", "-e", "-c", second], check=False)
        assert shell.stdout == b"b'[0]'\n", shell.stderr
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(120)
    named = re.findall(r"\*\*`(make \w+)`\*\*", README)
    assert named == ["make demo", "make test"]
    demo = run(["bash", "-c", named[0]], check=False)
    assert (demo.returncode, b"checks passed" in demo.stdout) == (0, True), (
        demo.stdout + demo.stderr
    )
    shutil.rmtree(folder)
