"""Asks the container until it has answered a batch, as ModelClientConfig allows."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sagehen.base.clock import Clock
from sagehen.base.retry import Backoff
from sagehen.services.sagemaker.transform.runner.errors import BatchError
from sagehen.services.sagemaker.transform.runner.instances import Instance, Instances
from sagehen.services.sagemaker.transform.runner.invocation import (
    Answer,
    AnswerTooLarge,
    InstanceLost,
    Invoker,
    NotStarted,
    TimedOut,
)

__all__ = ["MAX_REASON_CHARACTERS", "Retries"]

log = logging.getLogger(__name__)

MAX_LOSSES = 8
"""instances that a batch may lose: the container may have died of it"""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
MAX_REASON_CHARACTERS = 4000
"""of an answer, in the log"""
NO_RESPONSE = "Unable to get response from algorithm"


class _Failures:
    """Counts the failures of one batch and says when they are too many."""

    def __init__(self, clock: Clock, max_retries: int) -> None:
        self._clock = clock
        self._max_retries = max_retries
        self._failures = 0
        self._losses = 0
        self._backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)

    async def lost(self, error: InstanceLost) -> None:
        """An instance that ends is no failure of the batch, if it is not for ever. Raises
        BatchError."""
        self._losses += 1
        if self._losses > MAX_LOSSES:
            raise _no_response(str(error)) from error

    async def timed_out(self, error: TimedOut) -> None:
        """Raises BatchError."""
        self._failures += 1
        if self._failures > self._max_retries:
            raise _no_response(str(error)) from error
        await self.wait()

    async def failed(self, answer: Answer) -> None:
        """Returns if the batch should be sent again. Raises BatchError."""
        self._failures += 1
        may_repeat = answer.status == 429 or answer.status >= 500
        if not may_repeat or self._failures > self._max_retries:
            raise _failed_answer(answer.status, answer.body)
        await self.wait()

    async def wait(self) -> None:
        await self._clock.sleep(self._backoff.next_seconds())


@dataclass(frozen=True)
class Retries:
    """Sends batches to instances."""

    instances: Instances
    clock: Clock
    invoker: Invoker
    max_retries: int

    async def answer(self, payload: bytes) -> bytes:
        """Returns the body of a successful answer. Raises BatchError."""
        answer = await self.attempt(lambda instance: self.invoker.ask(instance.stages, payload))
        return answer.body

    async def attempt(self, ask: Callable[[Instance], Awaitable[Answer]]) -> Answer:
        """Asks instances until one has answered with success. Raises BatchError, and what else
        `ask` raises.

        `ask` may raise NotStarted, InstanceLost, TimedOut and AnswerTooLarge.
        """
        retry = _Failures(self.clock, self.max_retries)
        is_again = False
        while True:
            async with self.instances.slot(is_urgent=is_again) as instance:
                is_again = True
                try:
                    answer = await ask(instance)
                except NotStarted:
                    self.instances.unreachable(instance)
                    continue
                except InstanceLost as error:
                    log.info("A request is sent again: %s", error)
                    self.instances.unreachable(instance)
                    await retry.lost(error)
                    continue
                except AnswerTooLarge as error:
                    raise _no_response(str(error)) from error
                except TimedOut as error:
                    timed_out = error
                    answer = None
                else:
                    self.instances.answered(instance)
            # The slot is free while the batch waits.
            if answer is None:
                await retry.timed_out(timed_out)
            elif answer.is_success:
                return answer
            else:
                await retry.failed(answer)


def _failed_answer(status: int, body: bytes) -> BatchError:
    """Words it as SageMaker's data-log does."""
    reason = body[:MAX_REASON_CHARACTERS].decode("utf-8", "replace")
    if 400 <= status < 500:
        return BatchError(
            "ClientError", f"ClientError: {status}\n\nMessage:\n{reason}", status, reason
        )
    text = f"Bad HTTP status received from algorithm: {status}\n\nMessage:\n{reason}"
    return BatchError("AlgorithmError", text, status, reason)


def _no_response(reason: str) -> BatchError:
    return BatchError("AlgorithmError", f"{NO_RESPONSE}\n\nMessage:\n{reason}", None, reason)
