"""SageMaker's multi-model contract, from the caller's side: load, unload, look."""

import msgspec

from sagehen.agent.faults import ModelRefused, NoRoom
from sagehen.agent.http import Answer, exchange

__all__ = ["ModelCalls"]

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

    async def _ask(self, method: str, path: str, body: bytes, timeout_seconds: float) -> Answer:
        return await exchange(self._address, method, path, body, timeout_seconds=timeout_seconds)


def _say(answer: Answer) -> str:
    return answer.text[:LONGEST_TEXT] or f"It answered with HTTP {answer.status}."
