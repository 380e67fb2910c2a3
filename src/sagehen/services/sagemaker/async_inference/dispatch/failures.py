"""Why a request ends without an answer.

A reason begins with whose fault it is: `ClientError:` (the caller or the model) or
`InternalServerError:`. Only the sentences about 4xx and 5xx were seen from SageMaker; the others
are Sagehen's own (docs/compatibility/invocations.md).
"""

import re

from sagehen.base.errors import SagehenError
from sagehen.services.sagemaker.async_inference.records import AsyncState, QueuedRequest

__all__ = [
    "AsyncFailure",
    "answer_not_spooled",
    "answer_too_large",
    "answered_with_error",
    "cancelled",
    "deleted",
    "early_failure",
    "input_missing",
    "input_too_large",
    "lost_too_often",
    "not_sendable",
    "not_stored",
    "timed_out",
    "unreadable_answer",
]

LONGEST_REASON = 1024
LONGEST_LINE = 300
"""characters of a container's answer"""
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning)\b(: .*)?$")
_JSON_MESSAGE = re.compile(r'"message":\s*"((?:[^"\\]|\\.)+)"', re.IGNORECASE)


class AsyncFailure(SagehenError):
    """The request has failed for good.

    Args:
        text: the failure object; by default the reason without its first word.
        metric: counts this failure, besides InvocationFailures.
    """

    def __init__(
        self,
        reason: str,
        state: AsyncState = AsyncState.FAILED,
        text: str | None = None,
        metric: str | None = None,
    ) -> None:
        self.reason = (
            reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"
        )
        super().__init__(self.reason)
        self.state = state
        self.text = text or self.reason.partition(": ")[2]
        self.metric = metric


def answered_with_error(status: int, beginning: bytes = b"") -> AsyncFailure:
    """Returns the failure for an answer that is not 2xx; `beginning` is of its body."""
    if 400 <= status < 500:
        fault, side = "ClientError", "client"
    else:
        fault, side = "InternalServerError", "server"
    detail = _most_telling_line(beginning.decode("utf-8", "replace"))
    return AsyncFailure(
        f"{fault}: Received {side} error ({status}) from model. See the SageMaker Endpoint logs in "
        "your account for more information." + (f" ({detail})" if detail else "")
    )


def _most_telling_line(text: str) -> str:
    """Returns the raised exception, the message in a JSON object, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if any(line.startswith(_TRACEBACK) for line in lines):
        raised = [line for line in lines if _EXCEPTION.match(line)]
        chosen = raised[-1] if raised else lines[0]
    else:
        match = _JSON_MESSAGE.search(text)
        chosen = match[1] if match else lines[0]
    return chosen if len(chosen) <= LONGEST_LINE else chosen[:LONGEST_LINE] + "…"


def timed_out(seconds: float) -> AsyncFailure:
    return AsyncFailure(
        'InternalServerError: Received server error (0) from primary with message "Your invocation '
        "timed out while waiting for a response from container primary. Review the latency metrics "
        'for each container in Amazon CloudWatch, resolve the issue, and try again." '
        f"(InvocationTimeoutSeconds: {seconds:g})"
    )


def lost_too_often(endpoint: str, times: int) -> AsyncFailure:
    text = f"Connection reset by peer for the {endpoint} endpoint. Please retry."
    reason = f"InternalServerError: {text} Its instance was lost {times} times."
    return AsyncFailure(reason, text=text)


def not_sendable(reason: str) -> AsyncFailure:
    return AsyncFailure(f"ClientError: The request cannot be sent to the container: {reason}")


def unreadable_answer(reason: str) -> AsyncFailure:
    return AsyncFailure(f"InternalServerError: The container's answer makes no sense: {reason}")


def answer_too_large(limit: int) -> AsyncFailure:
    return AsyncFailure(
        f"InternalServerError: The container's answer has more than {limit} bytes "
        "(max_async_response_bytes)."
    )


def answer_not_spooled(reason: str) -> AsyncFailure:
    return AsyncFailure(
        f"InternalServerError: The container's answer could not be kept: {reason}",
        metric="ResponseUploadFailures",
    )


def input_missing(url: str, reason: str) -> AsyncFailure:
    return AsyncFailure(
        f"ClientError: The input at {url} could not be read: {reason}",
        metric="RequestDownloadFailures",
    )


def input_too_large(url: str, size: int, limit: int) -> AsyncFailure:
    return AsyncFailure(
        f"ClientError: The input at {url} has {size} bytes; at most {limit} are allowed "
        "(max_async_input_bytes).",
        metric="RequestDownloadFailures",
    )


def not_stored(url: str, reason: str) -> AsyncFailure:
    return AsyncFailure(
        f"ClientError: The response could not be written to {url}: {reason}",
        metric="ResponseUploadFailures",
    )


def cancelled() -> AsyncFailure:
    return AsyncFailure("ClientError: The request was cancelled.", AsyncState.CANCELLED)


def _expired() -> AsyncFailure:
    return AsyncFailure(
        "ClientError: The request waited in the queue for longer than its RequestTTLSeconds.",
        AsyncState.EXPIRED,
        metric="ExpiredRequests",
    )


def deleted(endpoint: str) -> AsyncFailure:
    return AsyncFailure(
        f"ClientError: The endpoint {endpoint} was deleted before the request was processed."
    )


def _reclaimed(times: int) -> AsyncFailure:
    return AsyncFailure(
        f"InternalServerError: The server was lost {times} times while it worked on the request."
    )


def early_failure(
    queued: QueuedRequest, *, abandoned_to: int, max_reclaims: int, now: float
) -> AsyncFailure | None:
    """Returns why a leased request must end without being sent; None to send it.

    Args:
        abandoned_to: requests up to this sequence belong to a deleted endpoint.
    """
    if queued.cancel_requested:
        return cancelled()
    if queued.sequence <= abandoned_to:
        return deleted(queued.request.endpoint_name)
    if queued.end_at is not None and queued.end_at <= now:
        return _expired()
    if queued.reclaimed >= max_reclaims:
        return _reclaimed(queued.reclaimed)
    return None
