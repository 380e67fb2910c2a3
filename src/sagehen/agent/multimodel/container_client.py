"""Client of SageMaker's multi-model contract, and checks of `TargetModel`."""

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
    """Raises Unavailable if the container cannot be reached."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def load(self, model_name: str, folder: str, timeout_seconds: float) -> None:
        """Loads a model, or does nothing if it is loaded.

        Raises:
            NoRoom: the container has no memory left.
            ModelRefused: another error.
        """
        body = msgspec.json.encode({"model_name": model_name, "url": folder})
        answer = await self._ask("POST", "/models", body, timeout_seconds)
        if answer.status == 507:
            raise NoRoom(_say(answer))
        if answer.status >= 300 and answer.status != 409:
            raise ModelRefused(_say(answer))

    async def unload(self, model_name: str) -> None:
        """Unloads a model, or does nothing if it is not loaded. Raises ModelRefused."""
        answer = await self._ask("DELETE", f"/models/{model_name}", b"", UNLOAD_SECONDS)
        if answer.status >= 300 and answer.status != 404:
            raise ModelRefused(_say(answer))

    async def holds(self, model_name: str) -> bool:
        """A container may lose a model by itself."""
        answer = await self._ask("GET", f"/models/{model_name}", b"", LOOK_SECONDS)
        return answer.status != 404

    async def is_multi_model(self) -> bool:
        return (await self._ask("GET", "/models", b"", LOOK_SECONDS)).status < 300

    async def _ask(
        self, method: str, path: str, body: bytes, timeout_seconds: float
    ) -> LocalAnswer:
        return await exchange(self._address, method, path, body, timeout_seconds=timeout_seconds)


def _say(answer: LocalAnswer) -> str:
    return answer.text[:LONGEST_TEXT] or f"It answered with HTTP {answer.status}."


LONGEST_TARGET = 1024


def check_target(target: str) -> None:
    """Raises Invalid, in SageMaker's words, for what cannot be a key below the prefix."""
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
    """A model's name in the container, valid in every server's paths.

    Independent of the object's content: as in SageMaker, a loaded model serves on when its object
    is overwritten.
    """
    return hashlib.sha256(target.encode()).hexdigest()[:32]


def _refusal(target: str, constraint: str) -> str:
    shown = target if len(target) <= 100 else target[:100] + "…"
    return (
        f"1 validation error detected: Value '{shown}' at 'targetModel' failed to satisfy "
        f"constraint: {constraint}"
    )
