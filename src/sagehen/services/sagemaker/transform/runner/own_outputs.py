"""Tells a job's own outputs from its inputs, where outputs lie below the prefix of the inputs."""

from sagehen.frame.s3_client import S3Error
from sagehen.frame.s3_locations import Location
from sagehen.services.sagemaker.transform.runner.output_keys import (
    ERRORS_SUFFIX,
    OUTPUT_SUFFIX,
    possible_keys,
)
from sagehen.services.sagemaker.transform.runner.store import ObjectStore

__all__ = ["OwnOutputs"]


class OwnOutputs:
    """An object with the key of an input's output is no input, whoever has written it: else it
    would depend on the moment of the listing what the inputs are."""

    def __init__(self, store: ObjectStore, prefix: Location, output_path: Location) -> None:
        self._store = store
        self._prefix = prefix
        self._folder = output_path.below("")

    async def include(self, key: str) -> bool:
        """`key`: below the prefix of the inputs. Raises S3Error or Unavailable."""
        if self._folder.bucket != self._prefix.bucket or not key.startswith(self._folder.key):
            return False
        name = key[len(self._folder.key) :]
        for suffix in (OUTPUT_SUFFIX, ERRORS_SUFFIX):
            if name.endswith(suffix):
                for source in possible_keys(self._prefix.key, name.removesuffix(suffix)):
                    if await self._is_input(source):
                        return True
        return False

    async def _is_input(self, key: str) -> bool:
        try:
            piece = await self._store.read(self._prefix.bucket, key, 0, 1)
        except S3Error as error:
            if error.status != 404:
                raise
            return False
        if key.endswith("/") and not piece.object_size:
            return False
        return not await self.include(key)
