"""The choice of a cutter by a job's SplitType and BatchStrategy."""

from collections.abc import Callable

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.records.batches import (
    UNLIMITED,
    Batch,
    BrokenRecords,
    Cutter,
    RecordsError,
    RecordTooLarge,
)
from sagehen.services.sagemaker.transform.records.frames import (
    FrameCutter,
    FrameFormat,
    RecordIOFrames,
    TFRecordFrames,
)
from sagehen.services.sagemaker.transform.records.lines import LineCutter, SingleLineCutter
from sagehen.services.sagemaker.transform.records.whole import WholeCutter

__all__ = [
    "UNLIMITED",
    "Batch",
    "BrokenRecords",
    "Cutter",
    "RecordTooLarge",
    "RecordsError",
    "check_quoted_newlines",
    "make_cutter",
]

_FRAMES: dict[str, Callable[[], FrameFormat]] = {
    "RecordIO": RecordIOFrames,
    "TFRecord": TFRecordFrames,
}
_NO_LIMIT = 1 << 60  # offsets are added to it, in 64 bits


def make_cutter(
    split_type: str,
    batch_strategy: str,
    max_payload_bytes: int,
    content_type: str | None = None,
    *,
    csv_quoted_newlines: bool = False,
) -> Cutter:
    """Returns a cutter for one object.

    With `max_payload_bytes` of 0 (UNLIMITED) a payload has no limit: the cutter then holds a whole
    record, which is the object unless the batches are of single records. Raises Invalid.
    """
    limit = _NO_LIMIT if max_payload_bytes == UNLIMITED else max_payload_bytes
    single = batch_strategy == "SingleRecord"
    if csv_quoted_newlines:
        check_quoted_newlines(split_type, content_type)
    if split_type == "None":
        return WholeCutter(limit)
    if split_type == "Line":
        return (SingleLineCutter if single else LineCutter)(limit, quotes=csv_quoted_newlines)
    if split_type in _FRAMES:
        return FrameCutter(_FRAMES[split_type](), limit, single=single)
    raise Invalid(f'SplitType "{split_type}" is not one of None, Line, RecordIO and TFRecord.')


def check_quoted_newlines(split_type: str, content_type: str | None) -> None:
    """Refuses CSV_QUOTED_NEWLINES for other objects than lines of CSV. Raises Invalid."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if split_type != "Line" or media_type != "text/csv":
        raise Invalid(
            "SAGEHEN_TRANSFORM_CSV_QUOTED_NEWLINES is for objects of ContentType text/csv and "
            f'SplitType Line; this job has ContentType "{content_type or ""}" and SplitType '
            f"{split_type}. Remove the variable, or change these."
        )
