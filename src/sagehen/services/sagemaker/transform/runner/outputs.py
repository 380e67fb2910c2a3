"""Writes outputs, large ones in parts. Each becomes visible as a whole."""

import asyncio
from contextlib import suppress

from sagehen.base.errors import SagehenError
from sagehen.frame.s3_client import MAX_PART_NUMBER, S3Error
from sagehen.frame.s3_locations import Location
from sagehen.services.sagemaker.transform.runner.errors import JobError, ObjectError
from sagehen.services.sagemaker.transform.runner.store import ObjectStore

__all__ = ["Output", "Outputs"]

PART_BYTES = 8 * 2**20
PARTS_OF_ONE_SIZE = 1000
"""then the parts become twice as large: 10,000 parts are enough for any object"""
_FATAL_CODES = frozenset({"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId"})


class Outputs:
    """Makes the outputs of a job.

    `owner`: of multipart uploads, by which control finds those that a runner has left.
    """

    def __init__(self, store: ObjectStore, owner: str) -> None:
        self.store = store
        self.owner = owner
        self._open: set[Output] = set()

    def open(self, location: Location, content_type: str | None = None) -> "Output":
        output = Output(self, location, content_type)
        self._open.add(output)
        return output

    def closed(self, output: "Output") -> None:
        self._open.discard(output)

    async def abort_all(self) -> None:
        for output in list(self._open):
            await output.abort()


class Output:
    """One output: `write`, then `finish` or `abort`."""

    def __init__(self, outputs: Outputs, location: Location, content_type: str | None) -> None:
        self._outputs = outputs
        self._store = outputs.store
        self._location = location
        self._content_type = content_type
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._sending: asyncio.Task[str] | None = None
        """the last part, while the next one is gathered"""
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Raises ObjectError or JobError."""
        if not data:
            return
        self._pieces.append(data)
        self._held_bytes += len(data)
        self.size += len(data)
        if self._held_bytes >= self._part_bytes:
            await self._send_part()

    async def finish(self) -> None:
        """Makes the output visible. Raises ObjectError or JobError."""
        bucket, key = self._location.bucket, self._location.key
        try:
            if self._upload_id is None:
                await self._store.put(bucket, key, self._pieces, self._content_type)
            else:
                if self._pieces:
                    await self._send_part()
                await self._await_part()
                await self._store.complete_upload(bucket, key, self._upload_id, self._etags)
                self._upload_id = None
        except S3Error as error:
            raise self._refused(error) from error
        self._pieces.clear()
        self._outputs.closed(self)

    async def abort(self) -> None:
        """Leaves nothing in the store. An upload that cannot be aborted now is left to control."""
        self._outputs.closed(self)
        self._pieces.clear()
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError, SagehenError):
                await self._sending
        if self._upload_id is not None:
            bucket, key = self._location.bucket, self._location.key
            with suppress(SagehenError, OSError):
                await self._store.abort_upload(bucket, key, self._upload_id)

    @property
    def _part_bytes(self) -> int:
        return int(PART_BYTES * 2 ** (len(self._etags) // PARTS_OF_ONE_SIZE))

    async def _send_part(self) -> None:
        bucket, key = self._location.bucket, self._location.key
        try:
            if self._upload_id is None:
                self._upload_id = await self._store.create_upload(
                    bucket, key, self._content_type, self._outputs.owner
                )
            await self._await_part()
        except S3Error as error:
            raise self._refused(error) from error
        number = len(self._etags) + 1
        if number > MAX_PART_NUMBER:
            raise ObjectError("ClientError", "Its output is too large for S3.")
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        self._sending = asyncio.create_task(
            self._store.upload_part(bucket, key, self._upload_id, number, pieces)
        )

    async def _await_part(self) -> None:
        """Raises S3Error."""
        if self._sending is not None:
            self._etags.append(await self._sending)
            self._sending = None

    def _refused(self, error: S3Error) -> SagehenError:
        reason = f"Its output {self._location.url} cannot be written: {error.code}: {error}"
        if error.code in _FATAL_CODES:
            return JobError("ClientError", reason)
        return ObjectError("ClientError", reason)
