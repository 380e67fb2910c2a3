"""Writes src/sagehen/frame/image_versions.csv: the library versions of AWS's images, by tag.

    python scripts/image_versions.py CLONES

CLONES is a folder with clones of three public repositories of the GitHub organisation `aws`:
sagemaker-scikit-learn-container, sagemaker-xgboost-container and deep-learning-containers. The
versions of PyTorch, TensorFlow and Hugging Face images come from the SageMaker Python SDK
(`sagemaker/image_uri_config/*.json`, version 2, installed here) and from the last repository.
"""

import csv
import importlib.util
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parents[1] / "src/sagehen/frame/image_versions.csv"
HEAD = """\
# Library versions of AWS's images, by family and tag; written by scripts/image_versions.py.
# `libraries` are exact. `companions` are the other libraries of the image that models meet: of the
# same major version and not below the image's, as old ones have no wheels for newer Pythons.
# Sources: sdk = image_uri_config of the SageMaker Python SDK; the others are repositories of
# github.com/aws with the tag, branch or folder that was read.
"""
SKLEARN = "sagemaker-scikit-learn-container"
XGBOOST = "sagemaker-xgboost-container"
DLC = "deep-learning-containers"
COMPANIONS = ("numpy", "scipy", "pandas", "scikit-learn")

SKLEARN_REVISIONS = {
    "0.20.0": ("0.20.0", "docker/0.20.0/base/Dockerfile.cpu"),
    "0.23-1": ("v0.23-1", "docker/0.23-1/base/Dockerfile.cpu"),
    "1.0-1": ("v1.0-1", "docker/1.0-1/base/Dockerfile.cpu"),
    "1.2-1": ("v1.2-1", "docker/1.2-1/base/Dockerfile.cpu"),
    "1.2-1-1": ("v1.2-1-1", "docker/1.2-1-1/base/Dockerfile.cpu"),
    "1.4-2": ("v1.4.2", "docker/1.4-2/base/Dockerfile.cpu"),
    "1.4-2-py312": ("v1.4-2-py312", "docker/1.4-2-py312/base/Dockerfile.cpu"),
}
XGBOOST_REVISIONS = {
    "0.90-1": ("0.90-1", "docker/0.90-1/base/Dockerfile.cpu"),
    "0.90-2": ("0.90-2", "docker/0.90-2/base/Dockerfile.cpu"),
    "1.0-1": ("v1.0-1", "docker/1.0-1/base/Dockerfile.cpu"),
    "1.2-1": ("v1.2-1", "docker/1.2-1/base/Dockerfile.cpu"),
    "1.2-2": ("v1.2-2", "docker/1.2-2/base/Dockerfile.cpu"),
    "1.3-1": ("v1.3-1", "docker/1.3-1/base/Dockerfile.cpu"),
    "1.5-1": ("v1.5-1", "docker/1.5-1/base/Dockerfile.cpu"),
    "1.7-1": ("v1.7-1", "docker/1.7-1/base/Dockerfile.cpu"),
    "1.7-1-1": ("v1.7-1-1", "docker/1.7-1-1/base/Dockerfile.cpu"),
    "3.0-5": ("v3.0-5", "docker/3.0-5/base/Dockerfile.cpu"),
}
PROJECTS = {
    ("scikit-learn", "1.9-0"): "docker/sklearn/1.9-0/pyproject.toml",
    ("xgboost", "3.2-0"): "docker/xgboost/pyproject.toml",
}
DLC_FOLDERS = {
    "pytorch": ("pytorch-inference", "pytorch-training"),
    "tensorflow": ("tensorflow-inference", "tensorflow-training"),
    "huggingface-pytorch": ("huggingface-pytorch-inference", "huggingface-pytorch-training"),
    "huggingface-tensorflow": (
        "huggingface-tensorflow-inference",
        "huggingface-tensorflow-training",
    ),
}
LIBRARY = {"pytorch": "torch", "tensorflow": "tensorflow"}
TAG = re.compile(r"(?P<version>\d+\.\d+\.\d+)(-transformers(?P<transformers>\d+\.\d+\.\d+))?-")


class Row(NamedTuple):
    family: str
    tag: str
    python: str
    libraries: str
    companions: str
    source: str


def main(clones: Path) -> None:
    rows = [
        *images_of_requirements(clones, "scikit-learn", SKLEARN, SKLEARN_REVISIONS),
        *images_of_requirements(clones, "xgboost", XGBOOST, XGBOOST_REVISIONS),
        *images_of_projects(clones),
        *framework_rows(clones),
    ]
    rows.sort(key=lambda row: (row.family, [int(part) for part in re.findall(r"\d+", row.tag)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    TABLE.write_text(HEAD + text.getvalue())
    print(f"{len(rows)} tags in {TABLE}")


def images_of_requirements(
    clones: Path, family: str, repository: str, revisions: dict[str, tuple[str, str]]
) -> Iterator[Row]:
    for tag, (revision, dockerfile) in revisions.items():
        requirements = pins(show(clones, repository, revision, "requirements.txt").splitlines())
        docker = show(clones, repository, revision, dockerfile)
        installed = re.search(rf"{family}==([\d.]*\d)", docker)
        named = re.search(r"ARG XGBOOST_VERSION=(\S+)", docker)
        version = (named or installed)[1] if named or installed else requirements[family]
        python = re.search(r"(?:PYTHON_VERSION|python)=(\d+\.\d+)", docker)
        yield row(
            family,
            tag,
            python[1] if python else "",
            version,
            requirements,
            f"{repository} {revision}",
        )


def images_of_projects(clones: Path) -> Iterator[Row]:
    for (family, tag), path in PROJECTS.items():
        text = show(clones, DLC, "HEAD", path)
        python = re.search(r'requires-python = ">=(\d+\.\d+)', text)
        requirements = pins(re.findall(r'"([^"]+)"', text))
        yield row(
            family,
            tag,
            python[1] if python else "",
            requirements[family],
            requirements,
            f"{DLC} {path}",
        )


def row(
    family: str, tag: str, python: str, version: str, requirements: dict[str, str], source: str
) -> Row:
    companions = [
        companion(name, requirements[name], family, version)
        for name in COMPANIONS
        if name in requirements and name != family
    ]
    if "numpy" not in requirements:
        companions.insert(0, "numpy<2")
    if "pandas" not in requirements:
        companions.append("pandas")  # every one of these images has it
    return Row(family, tag, python, f"{family}=={version}", " ".join(companions), source)


def companion(name: str, version: str, family: str, of: str) -> str:
    major = int(version.partition(".")[0])
    below = "2" if name == "pandas" else str(major + 1)
    if name == "pandas" and major > 1:
        below = "3"
    old = number(of) < ((1, 6) if family == "xgboost" else (1, 2))
    if name == "numpy" and major == 1 and old:
        below = "1.24"  # which removed names that these libraries use, such as numpy.int
    if name == "scipy" and family == "scikit-learn" and number(of) < (1, 4):
        below = "1.12"
    if name == "scikit-learn":
        below = f"{major + 1}" if major else "1.3"
    return f"{name}>={version},<{below}"


def framework_rows(clones: Path) -> Iterator[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for found in (*sdk_rows(), *dlc_rows(clones)):
        known = rows.get((found.family, found.tag))
        if known is None or (not known.python and found.python):
            rows[found.family, found.tag] = found
    yield from rows.values()


def sdk_rows() -> Iterator[Row]:
    package = importlib.util.find_spec("sagemaker")
    folder = Path((package.submodule_search_locations or [""])[0], "image_uri_config")
    for family in ("pytorch", "tensorflow"):
        config = json.loads((folder / f"{family}.json").read_text())
        for scope in ("inference", "training"):
            for version, entry in config[scope]["versions"].items():
                yield framework_row(family, version, None, entry.get("py_versions"), "sdk")
    config = json.loads((folder / "huggingface.json").read_text())
    for scope in ("inference", "training"):
        for transformers, entry in config[scope]["versions"].items():
            for base, image in entry.items():
                if "py_versions" in image and isinstance(image, dict):
                    family, version = re.fullmatch(r"([a-z]+)([\d.]+)", base).groups()
                    yield framework_row(
                        f"huggingface-{family}", version, transformers, image["py_versions"], "sdk"
                    )


def dlc_rows(clones: Path) -> Iterator[Row]:
    listed = git(clones, DLC, "ls-tree", "-r", "--name-only", "HEAD", "docs/src/data").splitlines()
    for family, folders in DLC_FOLDERS.items():
        for path in listed:
            if path.split("/")[-2] not in folders or "sagemaker" not in path:
                continue
            text = show(clones, DLC, "HEAD", path)
            python = re.search(r"^python: (\S+)", text, re.MULTILINE)
            for tag in filter(None, map(TAG.match, re.findall(r'^ +- "(.+)"', text, re.MULTILINE))):
                pythons = [python[1]] if python else None
                yield framework_row(
                    family, tag["version"], tag["transformers"], pythons, f"{DLC} {path}"
                )


def framework_row(
    family: str, version: str, transformers: str | None, pythons: list[str] | None, source: str
) -> Row:
    framework = family.removeprefix("huggingface-")
    libraries = [f"{LIBRARY[framework]}=={version}"]
    tag = version
    if transformers:
        tag += f"-transformers{transformers}"
        libraries.append(f"transformers=={transformers}")
    # The first versions whose wheels are built for NumPy 2.
    numpy_2 = (2, 3) if framework == "pytorch" else (2, 18)
    companions = "" if number(version) >= numpy_2 else "numpy<2"
    return Row(family, tag, newest(pythons or []), " ".join(libraries), companions, source)


def newest(pythons: list[str]) -> str:
    """Returns `3.11` of `py3` and `py311`; `""` where no minor version is named."""
    minors = [int(name[3:]) for name in pythons if re.fullmatch(r"py3\d+", name)]
    return f"3.{max(minors)}" if minors else ""


def pins(lines: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w-]+)\s*==\s*([\d.]*\d)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def show(clones: Path, repository: str, revision: str, path: str) -> str:
    for name in (revision, f"origin/{revision}"):
        result = git(clones, repository, "show", f"{name}:{path}", check=False)
        if result:
            return result
    raise SystemExit(f"{repository} has no {path} at {revision}.")


def git(clones: Path, repository: str, *arguments: str, check: bool = True) -> str:
    command = ["git", "-C", str(clones / repository), *arguments]
    return subprocess.run(command, check=check, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
