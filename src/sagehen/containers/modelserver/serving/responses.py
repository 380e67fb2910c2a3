"""The answers every model server gives, in the words of SageMaker's."""

import json
import logging
import traceback

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.contract import ModelAnswer, Refusal

__all__ = [
    "RaisedElsewhere",
    "abandoned",
    "answer_too_large",
    "body_too_large",
    "by_model",
    "dying",
    "error",
    "failure",
    "healthy",
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
    """What the model's code raised in another process: the message, and the traceback's lines."""

    def __init__(self, message: str, lines: str) -> None:
        super().__init__(lines.rstrip())
        self.message = message
        self.lines = lines


def json_answer(status: int, content: object) -> ModelAnswer:
    return ModelAnswer(status, json.dumps(content).encode(), "application/json")


def error(status: int, kind: str, message: str) -> ModelAnswer:
    """An error in multi-model-server's form."""
    return json_answer(status, {"code": status, "type": kind, "message": message})


def dying() -> ModelAnswer:
    return error(
        503, "ServiceUnavailableException", "The worker processes of the model's code keep ending."
    )


def healthy(slots: int) -> ModelAnswer:
    """The answer to /ping; it tells the platform how many requests to send at once."""
    return ModelAnswer(200, headers=(("x-sagehen-slots", str(slots)),))


def body_too_large(most: int) -> ModelAnswer:
    return error(
        413,
        "RequestEntityTooLargeException",
        f"The body is over {most} bytes: TS_MAX_REQUEST_SIZE, MMS_MAX_REQUEST_SIZE or, "
        "for XGBoost, MAX_CONTENT_LENGTH sets how many it may have.",
    )


def answer_too_large(size: int, most: int) -> ModelAnswer:
    """`size`: as far as it is known."""
    return error(
        500,
        "InternalServerException",
        f"The model's answer has at least {size} bytes, which is over {most}: "
        "TS_MAX_RESPONSE_SIZE or MMS_MAX_RESPONSE_SIZE sets how many it may have.",
    )


def not_loaded(name: str) -> ModelAnswer:
    """On which the platform loads the model and asks again."""
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
    """The code may have begun the request: it cannot be sent elsewhere."""
    return error(500, "InternalServerException", f"The worker process of the model's code {how}.")


def not_started() -> ModelAnswer:
    """For what arrives while the server is ending: it is safe to send it elsewhere."""
    return _not_begun("The server is ending.")._replace(close=True)


def still_loading() -> ModelAnswer:
    """For what a platform sends that does not know yet that the container was started again."""
    return _not_begun("The model is still loading.")


def _not_begun(why: str) -> ModelAnswer:
    answer = error(503, "ServiceUnavailableException", why)
    return answer._replace(headers=(("x-sagehen-not-started", "1"),))


def abandoned() -> ModelAnswer:
    """For a request nobody waits for any more; it is sent nowhere."""
    return ModelAnswer(499, close=True)


def by_model(answer: ModelAnswer) -> ModelAnswer:
    """`answer`, whose status the model's own code chose.

    In a multi-model container 404 and 507 have a meaning of their own, the model is not held or has
    no room, on which the platform loads it and asks again.
    """
    if answer.status not in (404, 507):
        return answer
    return answer._replace(headers=(*answer.headers, ("x-sagehen-by-model", "1")))


def failure(problem: BaseException) -> ModelAnswer:
    """What a problem becomes: a refusal's own answer, or as the inference toolkit does it.

    That is 500 with the message and then the traceback. Running out of memory is 507, which has
    the platform unload other models and try again.
    """
    if isinstance(problem, Refusal):
        return problem.answer
    if isinstance(problem, RaisedElsewhere):
        log.error("A request failed.\n%s", problem.lines)
        return traceback_answer(500, problem.message, problem.lines)
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
