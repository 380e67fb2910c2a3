"""Why a job, an object or a batch has no result.

SagehenError
├── JobError
├── ObjectError
└── BatchError
"""

from sagehen.base.errors import SagehenError

__all__ = ["BatchError", "JobError", "ObjectError"]


class JobError(SagehenError):
    """The job cannot go on. `error`: as of `RunnerEnded`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class ObjectError(SagehenError):
    """An object has no output. `error`: `ClientError` or `AlgorithmError`.

    The text has a line for each of the data-log.
    """

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BatchError(ObjectError):
    """The container cannot answer a batch. `status`: of its last answer, if there is one."""

    def __init__(self, error: str, message: str, status: int | None, reason: str) -> None:
        super().__init__(error, message)
        self.status = status
        self.reason = reason
