"""Which program stands for a container image: the name of its repository decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = [
    "BUILT_IN_IMAGES",
    "Launch",
    "find_launch",
    "image_name",
    "server_of_its_own",
    "unsuited",
]

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
"""Images of AWS whose names match a pattern above, but which run something else."""

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
"""Frameworks whose names many images have that are not AWS's own for inference, and those that are.
An image's framework is the first one here that its name has in it."""


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


def unsuited(image: str, settings_images: Mapping[str, Sequence[str]]) -> str | None:
    """Why no new model may have an image though `find_launch` knows it by a part of its name.

    A whole sentence's predicate and what to do; None where nothing is against it. Models that
    were made before this was asked are started all the same.
    """
    if _find_command(image, settings_images):
        return None
    name = image_name(image).lower()
    for pattern, why in _UNSUITED:
        if fnmatchcase(name, pattern):
            return f"{why}, which Sagehen does not do. {_instead(name)}"
    framework = _framework(name)
    if framework is None or any(fnmatchcase(name, one) for one in _FRAMEWORKS[framework]):
        return None
    return (
        f"has {framework} in its name, and of such images Sagehen stands in for AWS's own for "
        f"inference ({', '.join(_FRAMEWORKS[framework])}); it is none of them. {_instead(name)}"
    )


def _framework(name: str) -> str | None:
    return next((one for one in _FRAMEWORKS if one in name), None)


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
