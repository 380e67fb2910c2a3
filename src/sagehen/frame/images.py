"""Chooses the program for a container image by its repository's name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = [
    "BUILT_IN_IMAGES",
    "DOCKER",
    "PROCESS",
    "ImageRule",
    "Launch",
    "find_launch",
    "image_name",
    "server_of_its_own",
    "unsuited",
]

ImageRule = Sequence[str]
"""a command of the user's own, or the text DOCKER or PROCESS"""
DOCKER, PROCESS = "docker", "process"
"""the launchers, as the settings `launcher` and `images` name them"""

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
"""repository patterns and the model server's adapter for each"""

_SERVERS: tuple[tuple[str, str], ...] = (
    ("*djl*", "DJL Serving"),
    ("*-tgi-*", "Text Generation Inference"),
    ("tei", "Text Embeddings Inference"),
    ("tei-*", "Text Embeddings Inference"),
    ("*vllm*", "vLLM"),
    ("*sglang*", "SGLang"),
    ("*tritonserver*", "Triton"),
)
"""repository patterns of servers that Sagehen does not replace"""

_UNSUITED: tuple[tuple[str, str], ...] = (
    ("*-neo", "runs models compiled by SageMaker Neo"),
    ("*-neo-*", "runs models compiled by SageMaker Neo"),
    ("sagemaker-inference-*", "runs models compiled by SageMaker Neo"),
    ("*neuron*", "is for AWS Inferentia and Trainium"),
    ("*-inf1*", "is for AWS Inferentia and Trainium"),
    ("*-inf2*", "is for AWS Inferentia and Trainium"),
    ("*-eia*", "is for Elastic Inference"),
    ("*-training*", "is for training jobs"),
    ("*-scriptmode", "is for training jobs"),
    ("sagemaker-rl-*", "is for training jobs"),
)
"""AWS images that match a pattern above, but run something else"""

_FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "huggingface": (
        "huggingface",
        "huggingface-pytorch-inference*",
        "huggingface-tensorflow-inference*",
    ),
    "pytorch": ("pytorch", "pytorch-inference*", "sagemaker-pytorch"),
    "tensorflow": (
        "tensorflow",
        "tensorflow-inference*",
        "sagemaker-tensorflow",
        "sagemaker-tensorflow-serving",
    ),
}
"""frameworks that foreign images name too, with AWS's own; an image's first framework counts"""


@dataclass(frozen=True)
class Launch:
    """How to start an image: exactly one of the three is set."""

    adapter: str | None = None
    """adapter of Sagehen's model server, such as `xgboost`"""
    command: tuple[str, ...] | None = None
    """the user's command, from the setting `images`"""
    docker: bool = False
    """the image itself, by the docker launcher"""


def find_launch(
    image: str, settings_images: Mapping[str, ImageRule], launcher: str = PROCESS
) -> Launch | None:
    """Returns None for an unknown image.

    `settings_images` win over `launcher` and built-in images, and literal names over patterns,
    which match the repository's name or the whole URI.
    """
    rule = _find_rule(image, settings_images) or launcher
    if rule == DOCKER:
        return Launch(docker=True)
    if rule != PROCESS:
        return Launch(command=tuple(rule))
    if server_of_its_own(image):
        return None
    name = image_name(image).lower()
    for pattern, adapter in BUILT_IN_IMAGES:
        if fnmatchcase(name, pattern):
            return Launch(adapter=adapter)
    return None


def server_of_its_own(image: str) -> str | None:
    """Returns the name of the image's server if Sagehen does not replace it."""
    name = image_name(image).lower()
    servers = (server for pattern, server in _SERVERS if fnmatchcase(name, pattern))
    return next(servers, None)


def unsuited(
    image: str, settings_images: Mapping[str, ImageRule], launcher: str = PROCESS
) -> str | None:
    """Returns why new models may not use an image that `find_launch` accepts, and advice. Older
    models still start."""
    launch = find_launch(image, settings_images, launcher)
    if launch is not None and launch.adapter is None:
        return None
    name = image_name(image).lower()
    for pattern, reason in _UNSUITED:
        if fnmatchcase(name, pattern):
            return f"{reason}, which Sagehen does not do. {_instead(name)}"
    framework = _framework(name)
    if framework is None or any(
        fnmatchcase(name, own_pattern) for own_pattern in _FRAMEWORKS[framework]
    ):
        return None
    return (
        f"has {framework} in its name, and of such images Sagehen stands in for AWS's own for "
        f"inference ({', '.join(_FRAMEWORKS[framework])}); it is none of them. {_instead(name)}"
    )


def _framework(name: str) -> str | None:
    return next((framework for framework in _FRAMEWORKS if framework in name), None)


def _instead(name: str) -> str:
    framework = _framework(name)
    plain = ""
    if framework is not None:
        plain = f"For a model of the framework itself use {_FRAMEWORKS[framework][1].strip('*')}. "
    return (
        f"{plain}To run a program of your own as this image, map its name to the command in "
        f'sagehen.toml: [images] "{name}" = ["python3", "serve.py"].'
    )


def image_name(image: str) -> str:
    """Returns `sagemaker-xgboost` for `…/sagemaker-xgboost:1.7-1`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _find_rule(image: str, rules: Mapping[str, ImageRule]) -> ImageRule | None:
    names = (image, image_name(image))
    for name in names:
        if name in rules:
            return rules[name]
    for pattern, rule in rules.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return rule
    return None
