"""Divides a batch that fails, to find the records that are at fault."""

from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.records.frames import (
    FrameFormat,
    RecordIOFrames,
    TFRecordFrames,
)
from sagehen.services.sagemaker.transform.records.record_ends import RecordEnds

__all__ = ["halve"]


def halve(batch: Batch, split_type: str, *, quotes: bool = False) -> tuple[Batch, Batch]:
    """Returns two batches of the same records in the same order; `batch` has several.

    `quotes`: as of `RecordEnds`.
    """
    left = batch.records // 2
    if split_type == "Line":
        end, start = _after_lines(batch.payload, left, quotes)
    else:
        end = _after_frames(batch.payload, left, _FRAMES[split_type])
        start = end
    return (
        Batch(batch.payload[:end], left, batch.first_record),
        Batch(batch.payload[start:], batch.records - left, batch.first_record + left),
    )


_FRAMES: dict[str, type[FrameFormat]] = {"RecordIO": RecordIOFrames, "TFRecord": TFRecordFrames}


def _after_lines(payload: bytes, count: int, quotes: bool) -> tuple[int, int]:
    """Returns where a line ends, without its terminator, and where the next one begins."""
    newline = int(RecordEnds(quotes=quotes).find(payload).all[count - 1])
    end = newline - 1 if payload[newline - 1 : newline] == b"\r" else newline
    return end, newline + 1


def _after_frames(payload: bytes, count: int, kind: type[FrameFormat]) -> int:
    frames = kind()
    at = 0
    is_first = True
    while count:
        frame = frames.read_head(payload, at, is_first=is_first)
        at += frame.size
        is_first = frame.is_last
        count -= frame.is_last
    return at
