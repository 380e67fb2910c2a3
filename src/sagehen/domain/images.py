"""Which program stands for a container image: the name of its repository decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["BUILT_IN_IMAGES", "Launch", "find_launch", "image_name", "server_of_its_own"]

BUILT_IN_IMAGES: tuple[tuple[str, str], ...] = (
    ("*xgboost*", "xgboost"),
    ("*scikit-learn*", "sklearn"),
    ("*sklearn*", "sklearn"),
    ("*lightgbm*", "lightgbm"),
    ("*onnx*", "onnx"),
    ("*huggingface*", "huggingface"),
    ("*pytorch*", "pytorch"),
    ("*tensorflow*", "tensorflow"),
    ("sagehen-python", "python"),
    ("python", "python"),
)
"""Patterns of repository names, and the model server's adapter that serves each."""

_SERVERS: tuple[tuple[str, str], ...] = (
    ("*djl*", "DJL Serving"),
    ("*-tgi-*", "Text Generation Inference"),
    ("tei", "Text Embeddings Inference"),
    ("tei-*", "Text Embeddings Inference"),
    ("*vllm*", "vLLM"),
    ("*sglang*", "SGLang"),
    ("*tritonserver*", "Triton"),
)
"""Patterns of repository names whose images are programs that Sagehen does not stand in for."""


@dataclass(frozen=True)
class Launch:
    """How to start what an image stands for: exactly one of the two is set."""

    adapter: str | None = None
    """Sagehen's model server with this adapter: `xgboost` or `python`, for example."""
    command: tuple[str, ...] | None = None
    """A command of the user's own, from the setting `images`."""


def find_launch(image: str, settings_images: Mapping[str, Sequence[str]]) -> Launch | None:
    """How to start `image`; None where nothing is known of it.

    The user's `settings_images` win over what is built in, and among them a literal name over a
    pattern. A pattern may match the repository's name or the whole URI.
    """
    command = _find_command(image, settings_images)
    if command:
        return Launch(command=tuple(command))
    if server_of_its_own(image):
        return None
    name = image_name(image).lower()
    for pattern, adapter in BUILT_IN_IMAGES:
        if fnmatchcase(name, pattern):
            return Launch(adapter=adapter)
    return None


def server_of_its_own(image: str) -> str | None:
    """The server that such an image runs, which nothing here stands in for."""
    name = image_name(image).lower()
    found = (server for pattern, server in _SERVERS if fnmatchcase(name, pattern))
    return next(found, None)


def image_name(image: str) -> str:
    """The last part of the repository: `…/sagemaker-xgboost:1.7-1` → `sagemaker-xgboost`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _find_command(image: str, commands: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    names = (image, image_name(image))
    for name in names:
        if name in commands:
            return commands[name]
    for pattern, command in commands.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return command
    return None
