"""Refuses or logs images whose library versions do not run here."""

import logging
from collections.abc import Iterable

from sagehen.base.settings import Settings
from sagehen.frame.image_versions import (
    MATCH,
    describe_versions,
    is_unknown_tag,
    unknown_tag,
)
from sagehen.frame.images import find_launch
from sagehen.services.sagemaker.errors import refused

__all__ = ["check_versions", "log_versions"]

log = logging.getLogger(__name__)


def check_versions(image: str, settings: Settings) -> None:
    """Raises AwsError for an unknown tag where versions must match."""
    launch = find_launch(image, settings.images, settings.launcher)
    if launch is not None and launch.adapter is None:
        return
    if settings.image_versions == MATCH and is_unknown_tag(image):
        raise refused(
            f"{unknown_tag(image)} Name one of its tags, or run what is installed: "
            'image_versions = "installed" in sagehen.toml.'
        )


def log_versions(kind: str, name: str, images: Iterable[str], settings: Settings) -> None:
    """Logs which libraries stand in for those of the images, if they differ."""
    for image in dict.fromkeys(images):
        text, differs = describe_versions(
            image, settings.image_versions, settings.images, settings.launcher
        )
        if text is not None and (differs or settings.image_versions == MATCH):
            log.info(
                "The %s %s with the image %s runs with %s.",
                kind,
                name,
                image,
                text,
                extra={"action": "image_versions", kind.replace(" ", "_"): name},
            )
