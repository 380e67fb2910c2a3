"""Objects that are not split: SplitType None."""

from sagehen.services.sagemaker.transform.records.batches import Batch, RecordTooLarge

__all__ = ["WholeCutter"]


class WholeCutter:
    """Makes one batch of the whole object; none of an empty one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Batch]:
        self._size += len(data)
        if self._size > self._limit:
            raise RecordTooLarge(0, 0, self._limit, " A SplitType cuts objects into records.")
        self._pieces.append(data)
        return []

    def end(self) -> list[Batch]:
        return [Batch(b"".join(self._pieces), 1, 0)] if self._size else []
