"""Where images are found: image URIs of SageMaker, by the setting `docker_registries`."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

__all__ = ["find_image_name", "is_ecr", "pull_failure"]

_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")


def find_image_name(uri: str, registries: Mapping[str, str]) -> str:
    """Replaces the beginning of a URI: the longest literal that matches, else the first pattern."""
    literal = max((name for name in registries if _begins(uri, name)), key=len, default=None)
    if literal is not None:
        return _join(registries[literal], uri[len(literal) :].lstrip("/"))
    registry, _, rest = uri.partition("/")
    for pattern, replacement in registries.items():
        if rest and fnmatchcase(registry, pattern):
            return _join(replacement, rest)
    return uri


def is_ecr(uri: str) -> bool:
    return _ECR.fullmatch(uri.partition("/")[0]) is not None


def pull_failure(uri: str, name: str, reason: str) -> str:
    """Says why an image could not be pulled, and what to do."""
    mapped = "" if name == uri else f" (for {uri}, by docker_registries)"
    if is_ecr(name):
        registry = name.partition("/")[0]
        region = registry.split(".")[3]
        advice = (
            "Sagehen has no token of ECR's: log in with `aws ecr get-login-password --region "
            f"{region} | docker login --username AWS --password-stdin {registry}` as the server's "
            "user, or name a registry of your own in docker_registries"
        )
    else:
        advice = (
            "check the name, `docker login` to its registry as the server's user, or build the "
            "image under this name"
        )
    return f"the image {name}{mapped} could not be pulled: {reason.rstrip('.')}. {advice}"


def _begins(uri: str, name: str) -> bool:
    return uri.startswith(name) and uri[len(name) : len(name) + 1] in ("", "/", ":", "@")


def _join(replacement: str, rest: str) -> str:
    if rest.startswith((":", "@")):
        return replacement.rstrip("/") + rest
    return f"{replacement.rstrip('/')}/{rest}".strip("/")
