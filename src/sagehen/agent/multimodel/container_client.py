"""Client of SageMaker's multi-model contract, and checks of `TargetModel`."""

import hashlib

import msgspec

from sagehen.agent.errors import ModelRefused, NoRoom
from sagehen.base.errors import Invalid
from sagehen.http1.call import LocalAnswer, call_once

__all__ = ["ContainerClient", "check_target", "opaque_name"]

QUERY_SECONDS = 2.0
UNLOAD_SECONDS = 60.0
MAX_ERROR_CHARACTERS = 1000


class ContainerClient:
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
        response = await self._request("POST", "/models", body, timeout_seconds)
        if response.status == 507:
            raise NoRoom(_error_text(response))
        if response.status >= 300 and response.status != 409:
            raise ModelRefused(_error_text(response))

    async def unload(self, model_name: str) -> None:
        """Unloads a model, or does nothing if it is not loaded. Raises ModelRefused."""
        response = await self._request("DELETE", f"/models/{model_name}", b"", UNLOAD_SECONDS)
        if response.status >= 300 and response.status != 404:
            raise ModelRefused(_error_text(response))

    async def holds(self, model_name: str) -> bool:
        """A container may lose a model by itself."""
        response = await self._request("GET", f"/models/{model_name}", b"", QUERY_SECONDS)
        return response.status != 404

    async def is_multi_model(self) -> bool:
        return (await self._request("GET", "/models", b"", QUERY_SECONDS)).status < 300

    async def _request(
        self, method: str, path: str, body: bytes, timeout_seconds: float
    ) -> LocalAnswer:
        return await call_once(self._address, method, path, body, timeout_seconds=timeout_seconds)


def _error_text(response: LocalAnswer) -> str:
    return response.text[:MAX_ERROR_CHARACTERS] or f"It answered with HTTP {response.status}."


MAX_TARGET_CHARACTERS = 1024


def check_target(target: str) -> None:
    """Raises Invalid, in SageMaker's words, for what cannot be a key below the prefix."""
    if not target or len(target) > MAX_TARGET_CHARACTERS:
        bound = "less than or equal to 1024" if target else "greater than or equal to 1"
        raise Invalid(_validation_error(target, f"Member must have length {bound}"))
    if not target.isprintable() or target[0].isspace():
        raise Invalid(
            _validation_error(
                target, r"Member must satisfy regular expression pattern: \A\S[\p{Print}]*\z"
            )
        )
    if target.startswith("/") or ".." in target.split("/") or target.endswith("/"):
        raise Invalid(
            _validation_error(
                target, "Member must be the key of an object relative to the ModelDataUrl"
            )
        )


def opaque_name(target: str) -> str:
    """A model's name in the container, valid in every server's paths.

    Independent of the object's content: as in SageMaker, a loaded model serves on when its object
    is overwritten.
    """
    return hashlib.sha256(target.encode()).hexdigest()[:32]


def _validation_error(target: str, constraint: str) -> str:
    shown = target if len(target) <= 100 else target[:100] + "…"
    return (
        f"1 validation error detected: Value '{shown}' at 'targetModel' failed to satisfy "
        f"constraint: {constraint}"
    )
