"""Which models multi-model instances hold, and having them loaded, once for all who wait."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

import msgspec

from sagehen.errors import Unavailable
from sagehen.gateway.local_call import call
from sagehen.gateway.pool import Pool

__all__ = ["LoadFailure", "LoadedModel", "LoadedModels", "ModelWaiter"]

log = logging.getLogger(__name__)

MODELS_REMEMBERED = 100_000
ANSWER_SLACK_SECONDS = 5.0
"""What the agent may take to answer beyond the time it was asked to wait."""


class LoadedModel(msgspec.Struct, frozen=True):
    """The agent's answer: `model_name` is opaque, for `/models/{model_name}/invoke`."""

    model_name: str
    hit: bool = False


@dataclass(frozen=True)
class LoadFailure:
    """Why there is no model: the agent's status, code and sentence."""

    status: int
    message: str


class _Failure(msgspec.Struct, frozen=True):
    message: str = ""


class ModelWaiter(Protocol):
    """A request that needs a model before it can be sent."""

    def model_loaded(self, model: LoadedModel) -> None: ...

    def model_failed(self, failure: LoadFailure) -> None: ...


class LoadedModels:
    """What this process knows; the agent knows better, and containers best.

    Instances are told apart by what is `Instance.holder`.
    """

    def __init__(self, agent: Pool) -> None:
        self._agent = agent
        self._names: dict[tuple[str, str], str] = {}
        self._waiting: dict[tuple[str, str], list[ModelWaiter]] = {}
        self._used: dict[str, set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, instance_id: str, target_model: str) -> str | None:
        """The name of a model that the instance holds, as far as is known here; notes its use."""
        name = self._names.get((instance_id, target_model))
        if name is not None:
            self._note_use(instance_id, name)
        return name

    def holds(self, instance_id: str, target_model: str) -> bool:
        """Whether an instance holds a model, as far as is known here."""
        return (instance_id, target_model) in self._names

    def load(
        self, instance_id: str, target_model: str, waiter: ModelWaiter, wait_seconds: float
    ) -> None:
        """Have the instance load a model; joins those who wait for the same already."""
        key = (instance_id, target_model)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(waiter)
            return
        self._waiting[key] = [waiter]
        task = asyncio.get_running_loop().create_task(self._ask(key, wait_seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, instance_id: str, target_model: str, waiter: ModelWaiter) -> None:
        """`waiter` does not wait any more; the loading goes on."""
        waiting = self._waiting.get((instance_id, target_model), [])
        if waiter in waiting:
            waiting.remove(waiter)

    def forget(self, instance_id: str, target_model: str) -> None:
        """The container says that it does not hold the model."""
        self._names.pop((instance_id, target_model), None)

    def keep_only(self, instance_ids: set[str]) -> None:
        """Forget instances that have left the routes."""
        self._names = {key: name for key, name in self._names.items() if key[0] in instance_ids}
        self._used = {one: names for one, names in self._used.items() if one in instance_ids}

    async def tell_use(self, timeout_seconds: float) -> None:
        """Tell the agent what was used since the last time, so that it unloads something else."""
        used, self._used = self._used, {}
        for instance_id, names in used.items():
            path = f"/instances/{quote(instance_id)}/models/touch"
            body = msgspec.json.encode({"model_names": sorted(names)})
            try:
                await call(self._agent, "POST", path, body, timeout_seconds)
            except Unavailable as error:
                log.debug("The agent was not told which models are in use: %s", error)
                return

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, key: tuple[str, str], wait_seconds: float) -> None:
        instance_id, target_model = key
        path = f"/instances/{quote(instance_id)}/models"
        body = msgspec.json.encode({"target_model": target_model, "wait_seconds": wait_seconds})
        outcome: LoadedModel | LoadFailure
        try:
            status, answer = await call(
                self._agent, "POST", path, body, wait_seconds + ANSWER_SLACK_SECONDS
            )
            outcome = _outcome(status, answer)
        except (Unavailable, msgspec.DecodeError) as error:
            outcome = LoadFailure(503, f"The agent of the instance does not answer: {error}")
        self._tell(key, outcome)

    def _tell(self, key: tuple[str, str], outcome: LoadedModel | LoadFailure) -> None:
        waiting = self._waiting.pop(key)
        if isinstance(outcome, LoadFailure):
            for waiter in waiting:
                waiter.model_failed(outcome)
            return
        if len(self._names) >= MODELS_REMEMBERED:
            self._names.clear()
        self._names[key] = outcome.model_name
        self._note_use(key[0], outcome.model_name)
        for waiter in waiting:
            waiter.model_loaded(outcome)

    def _note_use(self, instance_id: str, name: str) -> None:
        used = self._used.get(instance_id)
        if used is None:
            used = self._used[instance_id] = set()
        used.add(name)


def _outcome(status: int, answer: bytes) -> LoadedModel | LoadFailure:
    if status == 200:
        return msgspec.json.decode(answer, type=LoadedModel)
    return LoadFailure(status, msgspec.json.decode(answer, type=_Failure).message)
