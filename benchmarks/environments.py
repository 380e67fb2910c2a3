"""The environment of each peer: made by pip from its requirements.txt, kept in a cache folder."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path

from sides import HERE, Failed

PEERS = HERE / "peers"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sagehen-peers"

JAVA = ("java", "openjdk-17-jre-headless")
REDIS = ("redis-server", "redis-server")
PROGRAMS = {
    "torchserve": JAVA,
    "mms": JAVA,
    "spark": JAVA,
    "celery": REDIS,
    "ray_async": REDIS,
}
"""A program that a peer needs, and the Debian package that contains it."""


@dataclass(frozen=True)
class Environment:
    """The Python environment of one peer."""

    folder: Path

    @property
    def tools(self) -> Path:
        return self.folder / "bin"

    @property
    def packages(self) -> Path:
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / python / "site-packages"

    @property
    def variables(self) -> dict[str, str]:
        """Returns variables of the activated environment, with the peers' common modules."""
        return {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "PYTHONPATH": str(PEERS / "common"),
        }


def environment(
    peer: str, cache: Path, libraries: Sequence[str] | None = None, model: str = ""
) -> Environment:
    """The one in the cache, if it was made of the same requirements; else a new one.

    `libraries` are what the model needs that is called `model`; XGBoost, if nothing is said.
    """
    if peer in PROGRAMS:
        program, package = PROGRAMS[peer]
        if not shutil.which(program):
            raise Failed(f"{program} is missing. To have it: apt-get install -y {package}")
    requirements = listed(PEERS / peer / "requirements.txt") + list(
        same_model() if libraries is None else libraries
    )
    alone = listed(PEERS / peer / "without-dependencies.txt")
    peer_environment = Environment(cache.resolve() / "-".join(filter(None, (peer, model))))
    note = peer_environment.folder / "made-of.txt"
    specification = "\n".join([f"Python {sys.version}", *requirements, *alone])
    if not note.exists() or note.read_text() != specification:
        print(f"{peer}: installing {', '.join(requirements + alone)}", file=sys.stderr)
        shutil.rmtree(peer_environment.folder, ignore_errors=True)
        venv.create(peer_environment.folder, with_pip=True)
        install(peer_environment, requirements)
        if alone:
            install(peer_environment, ["--no-deps", *alone])
        # Last: an environment without it is made again.
        note.write_text(specification)
    return peer_environment


def listed(file: Path) -> list[str]:
    """Returns the requirements in a file, or nothing if it is missing."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if not line.startswith("#")]


def version_of(package: str, peer: str, cache: Path) -> str:
    """Returns the version in the peer's environment, or in ours if it has none."""
    peer_environment = Environment(cache.resolve() / peer)
    path = [str(peer_environment.packages)] if peer_environment.folder.exists() else sys.path
    return next(distribution.version for distribution in distributions(name=package, path=path))


def same_model() -> list[str]:
    """The library that predicts is the same on every side."""
    return [f"xgboost-cpu=={version('xgboost-cpu')}"]


def install(peer_environment: Environment, requirements: list[str]) -> None:
    log = peer_environment.folder / "pip-log.txt"
    pip = [str(peer_environment.tools / "python"), "-m", "pip", "install", "--progress-bar", "off"]
    with log.open("wb") as output:
        finished = subprocess.run([*pip, *requirements], stdout=output, stderr=output, check=False)
    if finished.returncode:
        errors = [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        raise Failed(f"pip: {'; '.join(errors) or 'failed'} (see {log})")
