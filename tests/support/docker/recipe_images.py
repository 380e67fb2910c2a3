"""Images of the recipes, built from examples/containers/*/Dockerfile without an image registry.

Debian's packages and PyPI must be reachable: the base image comes from debootstrap.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.recipes import FOLDER

__all__ = ["IMAGES", "build_image", "cannot_build"]

IMAGES = {
    "compiled": "compiled",
    "fastapi": "fastapi",
    "mlflow-container": "mlflow",
    "multi-model-server": "multi_model_server",
    "nginx-gunicorn-flask": "nginx_flask",
    "pytriton": "pytriton",
}
"""the folder of each recipe that has an image"""
BASE = "debian:bookworm"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def cannot_build() -> str:
    """Says which program is not installed, or ""."""
    return "" if shutil.which("debootstrap") else "debootstrap"


def build_image(client: Any, recipe: str) -> None:
    """Builds `RECIPE:1`, if it has changed."""
    if not client.images.list(BASE):
        _import_debian(client)
    client.images.build(
        path=str(FOLDER / IMAGES[recipe]), tag=f"{recipe}:1", network_mode="host", rm=True
    )


def _import_debian(client: Any) -> None:
    repository, _, release = BASE.partition(":")
    with tempfile.TemporaryDirectory(prefix="sgh-debian-") as made, tempfile.TemporaryFile() as tar:
        packages = "--include=ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, release, made],
            check=True,
            capture_output=True,
        )
        # With those of this machine's own network.
        shutil.copy(CERTIFICATES, made + str(CERTIFICATES))
        subprocess.run(["tar", "-C", made, "-c", "."], check=True, stdout=tar)
        tar.seek(0)
        client.api.import_image_from_data(tar, repository=repository, tag=release)
