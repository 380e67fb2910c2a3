"""Models on multi-model instances: loaded once for all waiters, and returned to the agent when
unused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from sagehen.base.errors import Unavailable
from sagehen.gateway.container.local_call import call
from sagehen.gateway.container.pool import Pool

__all__ = ["Lent", "LoadFailure", "LoadedModels", "ModelHolder", "ModelWaiter", "Returns"]

log = logging.getLogger(__name__)


class Lent(NamedTuple):
    """A model to return to an agent."""

    model_name: str
    times: int
    keep: bool


class Returns:
    """Returns models to agents; those added during a call share the next call."""

    def __init__(self, tell: Callable[[str, dict[str, int]], Awaitable[None]]) -> None:
        self._tell = tell
        self._counts: dict[str, dict[str, int]] = {}
        self._telling: set[str] = set()

    def add(self, instance_id: str, model_name: str, times: int) -> bool:
        """Returns whether the caller must call `tell`."""
        counts = self._counts.setdefault(instance_id, {})
        counts[model_name] = counts.get(model_name, 0) + times
        if instance_id in self._telling:
            return False
        self._telling.add(instance_id)
        return True

    async def tell(self, instance_id: str) -> None:
        try:
            while counts := self._counts.pop(instance_id, None):
                await self._tell(instance_id, counts)
        finally:
            self._telling.discard(instance_id)


MODELS_REMEMBERED = 100_000
RETURN_SECONDS = 5.0
ANSWER_SLACK_SECONDS = 5.0
"""for the agent's answer, beyond the wait asked for"""


class ModelHolder(msgspec.Struct, frozen=True):
    """A model lent by the agent until no request here needs it.

    `model_name` is opaque, for `/models/{model_name}/invoke`.
    """

    model_name: str
    hit: bool = False
    keep: bool = True
    """False: unloaded when returned, and requested each time"""


@dataclass(frozen=True)
class LoadFailure:
    """The agent's status and message."""

    status: int
    message: str


class _Failure(msgspec.Struct, frozen=True):
    message: str = ""


class ModelWaiter(Protocol):
    """A request that waits for a model."""

    def model_loaded(self, model: ModelHolder) -> None: ...

    def model_failed(self, failure: LoadFailure) -> None: ...


_Key = tuple[str, str]
"""(instance, target model)"""


class LoadedModels:
    """Models known here; agents and containers know better.

    Instances are identified by `RoutedInstance.holder`.
    """

    def __init__(self, agent: Pool) -> None:
        self._agent = agent
        self._names: dict[_Key, str] = {}
        self._users: dict[_Key, int] = {}
        """requests placed on an instance"""
        self._lent: dict[_Key, Lent] = {}
        self._waiting: dict[_Key, list[ModelWaiter]] = {}
        self._used: dict[str, set[str]] = {}
        self._returns = Returns(self._tell_returned)
        self._runs: Mapping[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, instance_id: str, target_model: str) -> str | None:
        return self._names.get((instance_id, target_model))

    def holds(self, instance_id: str, target_model: str) -> bool:
        return (instance_id, target_model) in self._names

    def begin(self, instance_id: str, target_model: str) -> None:
        """A request was placed on the instance."""
        key = (instance_id, target_model)
        self._users[key] = self._users.get(key, 0) + 1

    def end(self, instance_id: str, target_model: str) -> None:
        """A request has left the instance."""
        key = (instance_id, target_model)
        name = self._names.get(key)
        if name is not None:
            self._note_use(instance_id, name)
        users = self._users[key] - 1
        if users:
            self._users[key] = users
        else:
            del self._users[key]
            if key in self._lent:
                self._give_back(key)

    def load(
        self,
        instance_id: str,
        target_model: str,
        waiter: ModelWaiter,
        wait_seconds: float,
        short_of_memory: bool = False,
    ) -> None:
        """Loads a model once for all waiters.

        `short_of_memory`: the instance holds it but lacked memory to answer.
        """
        key = (instance_id, target_model)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(waiter)
            return
        self._waiting[key] = [waiter]
        self._spawn(self._ask(key, wait_seconds, short_of_memory))

    def leave(self, instance_id: str, target_model: str, waiter: ModelWaiter) -> None:
        """Stops waiting; the loading goes on."""
        waiting = self._waiting.get((instance_id, target_model), [])
        if waiter in waiting:
            waiting.remove(waiter)

    def forget(self, instance_id: str, target_model: str) -> None:
        self._names.pop((instance_id, target_model), None)

    def keep_only(self, runs: Mapping[str, str]) -> None:
        """Forgets instances that are gone or restarted; `runs`: run ids by instance."""
        same = {one for one, run in runs.items() if self._runs.get(one, run) == run}
        self._runs = runs
        self._names = {key: name for key, name in self._names.items() if key[0] in same}
        self._lent = {key: lent for key, lent in self._lent.items() if key[0] in same}
        self._used = {one: names for one, names in self._used.items() if one in same}

    async def tell_use(self, timeout_seconds: float) -> None:
        """Tells agents which models were used, so that they unload others."""
        for key in self._users:
            if (name := self._names.get(key)) is not None:
                self._note_use(key[0], name)
        used, self._used = self._used, {}
        for instance_id, names in used.items():
            try:
                await self._touch(instance_id, {"model_names": sorted(names)}, timeout_seconds)
            except Unavailable as error:
                log.debug("The agent was not told which models are in use: %s", error)
                return

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, key: _Key, wait_seconds: float, short_of_memory: bool) -> None:
        instance_id, target_model = key
        path = f"/instances/{quote(instance_id)}/models"
        wanted = {
            "target_model": target_model,
            "wait_seconds": wait_seconds,
            "short_of_memory": short_of_memory,
        }
        body = msgspec.json.encode(wanted)
        outcome: ModelHolder | LoadFailure
        try:
            status, answer = await call(
                self._agent, "POST", path, body, wait_seconds + ANSWER_SLACK_SECONDS
            )
            outcome = _outcome(status, answer)
        except (Unavailable, msgspec.DecodeError) as error:
            outcome = LoadFailure(503, f"The agent of the instance does not answer: {error}")
        self._tell(key, outcome)

    def _tell(self, key: _Key, outcome: ModelHolder | LoadFailure) -> None:
        waiting = self._waiting.pop(key)
        if isinstance(outcome, LoadFailure):
            for waiter in waiting:
                waiter.model_failed(outcome)
            return
        if len(self._names) >= MODELS_REMEMBERED:
            del self._names[next(iter(self._names))]
        self._names[key] = outcome.model_name
        lent = self._lent.get(key)
        times = 1 if lent is None else lent.times + 1
        self._lent[key] = Lent(outcome.model_name, times, outcome.keep)
        for waiter in waiting:
            waiter.model_loaded(outcome)
        if key not in self._users and key in self._lent:
            self._give_back(key)  # all waiters have left

    def _give_back(self, key: _Key) -> None:
        lent = self._lent.pop(key)
        if not lent.keep:
            self._names.pop(key, None)
        if self._returns.add(key[0], lent.model_name, lent.times):
            self._spawn(self._returns.tell(key[0]))

    async def _tell_returned(self, instance_id: str, counts: dict[str, int]) -> None:
        try:
            await self._touch(instance_id, {"given_back": counts}, RETURN_SECONDS)
        except Unavailable as error:
            # The agent notices by itself, as the models are not reported used.
            log.debug("The agent was not given back models: %s", error)

    async def _touch(self, instance_id: str, said: object, timeout_seconds: float) -> None:
        path = f"/instances/{quote(instance_id)}/models/touch"
        await call(self._agent, "POST", path, msgspec.json.encode(said), timeout_seconds)

    def _note_use(self, instance_id: str, name: str) -> None:
        used = self._used.get(instance_id)
        if used is None:
            used = self._used[instance_id] = set()
        used.add(name)


def _outcome(status: int, answer: bytes) -> ModelHolder | LoadFailure:
    if status == 200:
        return msgspec.json.decode(answer, type=ModelHolder)
    return LoadFailure(status, msgspec.json.decode(answer, type=_Failure).message)
