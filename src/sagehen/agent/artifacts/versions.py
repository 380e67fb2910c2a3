"""The objects that make up one version of model data, and the names of the version: that of its
artifact, and those by which control knows it."""

import hashlib
import logging
from collections.abc import Sequence

from sagehen.agent.artifacts.fetch import ModelData, ModelDataReader, StoredObject
from sagehen.base.errors import ArtifactMissing, NotFound
from sagehen.frame.nodes import model_version
from sagehen.services.s3.storage.errors import NoSuchKey

__all__ = ["artifact_name", "find_objects", "model_versions"]

log = logging.getLogger(__name__)


async def find_objects(reader: ModelDataReader, data: ModelData) -> list[StoredObject]:
    """Raises ArtifactMissing."""
    location = data.location
    try:
        if data.compressed or not location.is_prefix:
            stored = await reader.head(location)
            if data.etag not in (None, stored.etag):
                log.warning(
                    "%s was overwritten after the endpoint was deployed, and the deployed "
                    "version is no longer cached: the new version is served.",
                    location.url,
                )
            return [stored]
        objects = [item async for item in reader.list(location)]
    except NoSuchKey as error:
        raise ArtifactMissing(f"There is no object at {location.url}.") from error
    except NotFound as error:
        raise ArtifactMissing(f"There is no object at {location.url}: {error}") from error
    if not objects:
        raise ArtifactMissing(f"There are no objects below {location.url}.")
    return objects


def artifact_name(data: ModelData, objects: Sequence[StoredObject]) -> str:
    digest = hashlib.sha256(f"{data.location.url}\0{data.compressed}".encode())
    for stored in objects:
        digest.update(f"\0{stored.key}\0{stored.etag}".encode())
    return digest.hexdigest()[:40]


def model_versions(data: ModelData, objects: Sequence[StoredObject]) -> tuple[str, ...]:
    """Returns the names by which control asks for this data, with the version and without."""
    if data.prefix is not None:
        return (data.prefix.url,)
    url = data.location.url
    if data.compressed or not data.location.is_prefix:
        return (url, model_version(url, objects[0].etag))
    return (url,)
