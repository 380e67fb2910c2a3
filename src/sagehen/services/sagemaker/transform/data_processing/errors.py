"""Errors of data processing.

DataProcessingError
├── FilterError
├── InputRecordError
└── AnswerError
"""

from sagehen.base.errors import SagehenError

__all__ = ["AnswerError", "DataProcessingError", "FilterError", "InputRecordError"]

_EXCERPT = 80


class DataProcessingError(SagehenError):
    """Records or answers cannot be filtered or joined."""

    failure = "ClientError"
    """the kind of failure of the object, for the job's FailureReason"""


class FilterError(DataProcessingError):
    """A filter that CreateTransformJob has accepted cannot be applied."""


class InputRecordError(DataProcessingError):
    """A record of the input cannot be read, or lacks what a filter selects."""

    def __init__(self, record: int, reason: str) -> None:
        super().__init__(f"Record {record}: {reason}.")
        self.record = record
        """within the object, from 0"""


class AnswerError(DataProcessingError):
    """The container's answer cannot be read, or does not fit the records that were sent."""

    failure = "AlgorithmError"

    @classmethod
    def not_parsed(cls, form: str, reason: str, excerpt: bytes) -> "AnswerError":
        near = excerpt[:_EXCERPT].decode(errors="replace")
        return cls(
            f"Failed to parse output from the algorithm as {form}: {reason} found near: {near}"
        )
