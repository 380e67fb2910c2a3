"""The library versions that the tags of AWS's images name, beside those that run here.

The table `image_versions.csv` is written by scripts/image_versions.py, which names its sources.
"""

import csv
import functools
import importlib.metadata
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sagehen.frame.images import PROCESS, ImageRule, find_launch, image_name

__all__ = [
    "INSTALLED",
    "MATCH",
    "ImageVersions",
    "describe_versions",
    "find_versions",
    "is_unknown_tag",
    "resolved_image",
    "unknown_tag",
]

INSTALLED = "installed"
MATCH = "match"

_FAMILIES: tuple[tuple[str, str], ...] = (
    ("sagemaker-scikit-learn", "scikit-learn"),
    ("sagemaker-xgboost", "xgboost"),
    ("huggingface-pytorch-inference*", "huggingface-pytorch"),
    ("huggingface-pytorch-training*", "huggingface-pytorch"),
    ("huggingface-tensorflow-inference*", "huggingface-tensorflow"),
    ("huggingface-tensorflow-training*", "huggingface-tensorflow"),
    ("pytorch-inference*", "pytorch"),
    ("pytorch-training*", "pytorch"),
    ("sagemaker-pytorch", "pytorch"),
    ("tensorflow-inference*", "tensorflow"),
    ("tensorflow-training*", "tensorflow"),
    ("sagemaker-tensorflow*", "tensorflow"),
)
"""AWS's repositories; images of other names promise no versions"""
_OTHER_NAMES = {"xgboost": "xgboost-cpu", "tensorflow": "tensorflow-cpu"}
"""packages with the same module"""
_PYTHON = re.compile(r"-py(\d)(\d+)(?=-|$)")


@dataclass(frozen=True, kw_only=True)
class ImageVersions:
    """The libraries in an image of AWS."""

    family: str
    tag: str
    python: str
    """`3.8`, or "" where no list says it"""
    libraries: Mapping[str, str]
    """version by package"""
    companions: tuple[str, ...]
    """requirements of other packages, less exact"""

    def __str__(self) -> str:
        return _joined(self.libraries, self.python)


def find_versions(image: str) -> ImageVersions | None:
    """Returns None for an unknown tag, and for images that are not AWS's."""
    family, tag = _family(image), _tag(image)
    if family is None or not tag:
        return None
    rows = _table()[family]
    found = max(
        (row for row in rows if _starts(tag, row.tag) or _starts(tag, _short(row.tag))),
        # Of an alias such as 2.3 the newest patch release, which is the last.
        key=lambda row: (len(row.tag) if _starts(tag, row.tag) else 0, rows.index(row)),
        default=None,
    )
    named = _PYTHON.search(tag)
    if found is None or named is None or found.family == "scikit-learn":
        return found
    return ImageVersions(**vars(found) | {"python": f"{named[1]}.{named[2]}"})


def is_unknown_tag(image: str) -> bool:
    """Whether it is one of AWS's images, with a tag that the table does not have."""
    return _family(image) is not None and find_versions(image) is None


def unknown_tag(image: str) -> str:
    family = _family(image) or ""
    tags = ", ".join(row.tag for row in _table()[family][-12:])
    return (
        f"The tag of the image {image} is not in Sagehen's table of library versions; the newest "
        f"that it has of {family} are {tags}."
    )


def describe_versions(
    image: str, mode: str, images: Mapping[str, ImageRule], launcher: str = PROCESS
) -> tuple[str | None, bool]:
    """Returns what runs in place of the image's libraries, and whether they differ.

    None stands for images whose name promises no versions.
    """
    if not _is_stood_in(image, images, launcher):
        return None, False
    versions = find_versions(image)
    if versions is None:
        return f"what is installed, as no list of versions has the tag of {image}", True
    if mode == MATCH:
        own = f" (the image has Python {versions.python})" if versions.python else ""
        return f"{_joined(versions.libraries, '')}, in an environment of its own{own}", False
    installed = _installed(versions)
    if installed == versions.libraries and _python() == versions.python:
        return str(versions), False
    return f"{_joined(installed, _python())} in place of {versions}", True


def resolved_image(
    image: str, mode: str, images: Mapping[str, ImageRule], launcher: str = PROCESS
) -> str:
    """Returns DescribeEndpoint's ResolvedImage: what stands in for one of AWS's images."""
    if not _is_stood_in(image, images, launcher):
        return image
    versions = find_versions(image)
    if versions is None:
        return image
    libraries: Mapping[str, str | None]
    if mode == MATCH:
        libraries, python = versions.libraries, ""
    else:
        libraries, python = _installed(versions), _python()
    parts = [f"{name}-{version or 'missing'}" for name, version in libraries.items()]
    parts += [f"python-{python}"] if python else []
    return f"sagehen/{versions.family}:{'-'.join(parts)}".partition("+")[0]


def _is_stood_in(image: str, images: Mapping[str, ImageRule], launcher: str) -> bool:
    """Whether Sagehen's own programs run in place of an image of AWS."""
    launch = find_launch(image, images, launcher)
    return _family(image) is not None and (launch is None or launch.adapter is not None)


def _installed(versions: ImageVersions) -> dict[str, str | None]:
    return {name: _installed_version(name) for name in versions.libraries}


def _installed_version(name: str) -> str | None:
    for package in filter(None, (name, _OTHER_NAMES.get(name))):
        try:
            return importlib.metadata.version(package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _joined(libraries: Mapping[str, str | None] | Mapping[str, str], python: str) -> str:
    parts = [f"{name} {version or '(not installed)'}" for name, version in libraries.items()]
    return ", ".join([*parts, *([f"Python {python}"] if python else [])])


def _family(image: str) -> str | None:
    name = image_name(image)
    return next((family for pattern, family in _FAMILIES if fnmatchcase(name, pattern)), None)


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _starts(tag: str, known: str) -> bool:
    return bool(known) and f"{tag}-".startswith(f"{known}-")


def _short(tag: str) -> str:
    """Returns `2.3-transformers4.48` of `2.3.0-transformers4.48.0`, as AWS's aliases are."""
    parts = [re.fullmatch(r"(\D*\d+\.\d+)\.\d+", part) for part in tag.split("-")]
    return "-".join(part[1] for part in parts if part) if all(parts) else ""


@functools.cache
def _table() -> dict[str, list[ImageVersions]]:
    families: dict[str, list[ImageVersions]] = {}
    text = Path(__file__).with_suffix(".csv").read_text()
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for row in csv.DictReader(lines):
        pins = (requirement.partition("==")[::2] for requirement in row["libraries"].split())
        families.setdefault(row["family"], []).append(
            ImageVersions(
                family=row["family"],
                tag=row["tag"],
                python=row["python"],
                libraries=dict(pins),
                companions=tuple(row["companions"].split()),
            )
        )
    return families
