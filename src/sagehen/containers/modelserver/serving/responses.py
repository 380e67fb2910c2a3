"""The model server's answers, worded like SageMaker's."""

import json
import logging
import traceback

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.contract import ModelAnswer, Refusal
from sagehen.containers.modelserver.load_failures import LoadFailure

__all__ = [
    "RaisedElsewhere",
    "abandoned",
    "answer_head_too_large",
    "answer_too_large",
    "body_too_large",
    "by_model",
    "dying",
    "error",
    "failure",
    "healthy",
    "invalid_status",
    "json_answer",
    "not_loaded",
    "not_started",
    "queue_full",
    "still_loading",
    "timed_out",
    "too_much_held",
    "traceback_answer",
    "worker_died",
]

MAX_TRACEBACK_BYTES = 16 * 1024

_TEXT = "text/plain; charset=utf-8"

log = logging.getLogger(__name__)


class RaisedElsewhere(SagehenError):
    """An exception from another process."""

    def __init__(self, message: str, failure: LoadFailure) -> None:
        super().__init__(failure.lines.rstrip() or message)
        self.message = message
        self.failure = failure


def json_answer(status: int, content: object) -> ModelAnswer:
    return ModelAnswer(status, json.dumps(content).encode(), "application/json")


def error(status: int, kind: str, message: str) -> ModelAnswer:
    """Uses multi-model-server's format."""
    return json_answer(status, {"code": status, "type": kind, "message": message})


def dying() -> ModelAnswer:
    return error(
        503, "ServiceUnavailableException", "The worker processes of the model's code keep ending."
    )


def invalid_status(status: int) -> ModelAnswer:
    message = f"The model's code answered with the status {status}; it must be from 200 to 599."
    return error(500, "InternalServerException", message)


def healthy(slots: int) -> ModelAnswer:
    """Tells the platform how many requests to send at once."""
    return ModelAnswer(200, headers=(("x-sagehen-slots", str(slots)),))


def body_too_large(most: int) -> ModelAnswer:
    return error(
        413,
        "RequestEntityTooLargeException",
        f"The body is over {most} bytes: TS_MAX_REQUEST_SIZE, MMS_MAX_REQUEST_SIZE or, "
        "for XGBoost, MAX_CONTENT_LENGTH sets how many it may have.",
    )


def answer_too_large(size: int, most: int) -> ModelAnswer:
    """`size` is a lower bound."""
    return error(
        500,
        "InternalServerException",
        f"The model's answer has at least {size} bytes, which is over {most}: "
        "TS_MAX_RESPONSE_SIZE or MMS_MAX_RESPONSE_SIZE sets how many it may have.",
    )


def answer_head_too_large(size: int, most: int) -> ModelAnswer:
    return error(
        500,
        "InternalServerException",
        f"The header lines of the model's answer have {size} bytes; at most {most} are allowed.",
    )


def not_loaded(name: str) -> ModelAnswer:
    """Makes the platform load the model and retry."""
    return error(404, "ModelNotFoundException", f"Model not found: {name}")


def queue_full() -> ModelAnswer:
    return error(
        503,
        "ServiceUnavailableException",
        "No worker is available to serve the request: its model's queue is full. "
        "SAGEMAKER_MODEL_JOB_QUEUE_SIZE sets how many requests may wait.",
    )


def too_much_held(most_bytes: int) -> ModelAnswer:
    return error(
        503,
        "ServiceUnavailableException",
        f"The requests that wait or are worked on have more than {most_bytes} bytes together.",
    )


def timed_out(seconds: float) -> ModelAnswer:
    return error(
        500,
        "InternalServerException",
        f"The model's code did not answer within {seconds:g} seconds. "
        "SAGEMAKER_MODEL_SERVER_TIMEOUT sets how long it may take.",
    )


def worker_died(how: str) -> ModelAnswer:
    """The platform must not retry elsewhere: the request may have begun."""
    answer = error(500, "InternalServerException", f"The worker process of the model's code {how}.")
    return answer._replace(headers=(("x-sagehen-worker-died", "1"),))


def not_started() -> ModelAnswer:
    """The platform may safely retry elsewhere."""
    return _not_begun("The server is ending.")._replace(close=True)


def still_loading() -> ModelAnswer:
    """The platform does not know yet that the container restarted."""
    return _not_begun("The model is still loading.")


def _not_begun(reason: str) -> ModelAnswer:
    answer = error(503, "ServiceUnavailableException", reason)
    return answer._replace(headers=(("x-sagehen-not-started", "1"),))


def abandoned() -> ModelAnswer:
    """This is never sent: the client has disconnected."""
    return ModelAnswer(499, close=True)


def by_model(answer: ModelAnswer) -> ModelAnswer:
    """Marks the model's own 404 or 507.

    Otherwise these mean "not loaded" and "out of memory" in a multi-model container, and the
    platform loads the model and retries.
    """
    if answer.status not in (404, 507):
        return answer
    return answer._replace(headers=(*answer.headers, ("x-sagehen-by-model", "1")))


def failure(problem: BaseException) -> ModelAnswer:
    """Answers exceptions as the inference toolkit does: 500 with message and traceback.

    MemoryError becomes 507, on which the platform unloads other models and retries.
    """
    if isinstance(problem, Refusal):
        return problem.answer
    if isinstance(problem, RaisedElsewhere) and (lines := problem.failure.lines):
        log.error("A request failed.\n%s", lines)
        return traceback_answer(500, problem.message, lines)
    if isinstance(problem, SagehenError):
        return ModelAnswer(500, str(problem).encode(errors="replace"), _TEXT)
    lines = "".join(traceback.format_exception(problem))
    log.error("A request failed.\n%s", lines)
    if isinstance(problem, MemoryError):
        return error(507, "InsufficientMemoryException", f"Out of memory. {problem}".strip())
    return traceback_answer(500, str(problem), lines)


def traceback_answer(status: int, message: str, lines: str) -> ModelAnswer:
    body = f"{message}\n{lines}".encode(errors="replace")
    if len(body) > MAX_TRACEBACK_BYTES:
        half = MAX_TRACEBACK_BYTES // 2
        body = body[:half] + b"\n...\n" + body[-half:]
    return ModelAnswer(status, body, _TEXT)
