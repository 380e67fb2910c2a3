"""SageMaker's multi-model contract, from the caller's side: load, unload, look.

`TargetModel`: what may be asked for, and what the container knows it by.
"""

import hashlib

import msgspec

from sagehen.agent.errors import ModelRefused, NoRoom
from sagehen.agent.http import LocalAnswer, exchange
from sagehen.base.errors import Invalid

__all__ = ["ModelCalls", "check_target", "opaque_name"]

LOOK_SECONDS = 2.0
UNLOAD_SECONDS = 60.0
LONGEST_TEXT = 1000


class ModelCalls:
    """Tells one multi-model container what to hold. A container that is away is Unavailable."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def load(self, model_name: str, folder: str, timeout_seconds: float) -> None:
        """Have a model loaded; one that is loaded already is as good.

        Raises:
            NoRoom: the container has no memory left for it.
            ModelRefused: it answered with another error.
        """
        body = msgspec.json.encode({"model_name": model_name, "url": folder})
        answer = await self._ask("POST", "/models", body, timeout_seconds)
        if answer.status == 507:
            raise NoRoom(_say(answer))
        if answer.status >= 300 and answer.status != 409:
            raise ModelRefused(_say(answer))

    async def unload(self, model_name: str) -> None:
        """Have a model unloaded; one that is not loaded is as good.

        Raises:
            ModelRefused: it answered with another error.
        """
        answer = await self._ask("DELETE", f"/models/{model_name}", b"", UNLOAD_SECONDS)
        if answer.status >= 300 and answer.status != 404:
            raise ModelRefused(_say(answer))

    async def holds(self, model_name: str) -> bool:
        """Whether it has the model: a container may lose one without being told to."""
        answer = await self._ask("GET", f"/models/{model_name}", b"", LOOK_SECONDS)
        return answer.status != 404

    async def is_multi_model(self) -> bool:
        """Whether it speaks this contract at all."""
        return (await self._ask("GET", "/models", b"", LOOK_SECONDS)).status < 300

    async def _ask(
        self, method: str, path: str, body: bytes, timeout_seconds: float
    ) -> LocalAnswer:
        return await exchange(self._address, method, path, body, timeout_seconds=timeout_seconds)


def _say(answer: LocalAnswer) -> str:
    return answer.text[:LONGEST_TEXT] or f"It answered with HTTP {answer.status}."


LONGEST_TARGET = 1024


def check_target(target: str) -> None:
    """Refuse what cannot be the key of an object below the prefix.

    Raises:
        Invalid: with SageMaker's form of message.
    """
    if not target or len(target) > LONGEST_TARGET:
        bound = "less than or equal to 1024" if target else "greater than or equal to 1"
        raise Invalid(_refusal(target, f"Member must have length {bound}"))
    if not target.isprintable() or target[0].isspace():
        raise Invalid(
            _refusal(target, r"Member must satisfy regular expression pattern: \A\S[\p{Print}]*\z")
        )
    if target.startswith("/") or ".." in target.split("/") or target.endswith("/"):
        raise Invalid(
            _refusal(target, "Member must be the key of an object relative to the ModelDataUrl")
        )


def opaque_name(target: str) -> str:
    """What a container knows a target by: of the characters that every server takes in a path.

    Made of the target alone, not of the object's content: a model that is loaded serves on when
    its object is overwritten, as in SageMaker, which asks for a new key with each new model.
    """
    return hashlib.sha256(target.encode()).hexdigest()[:32]


def _refusal(target: str, constraint: str) -> str:
    shown = target if len(target) <= 100 else target[:100] + "…"
    return (
        f"1 validation error detected: Value '{shown}' at 'targetModel' failed to satisfy "
        f"constraint: {constraint}"
    )
