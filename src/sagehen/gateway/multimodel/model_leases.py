"""Models on multi-model instances, leased from the agent: loaded once for all waiters, and returned
when no request here needs them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from sagehen.base.errors import Unavailable
from sagehen.http1.call import call
from sagehen.http1.pool import Pool

__all__ = ["LeaseReturns", "LeasedModel", "ModelLeases", "ModelLoadFailure", "ModelWaiter"]

log = logging.getLogger(__name__)


class _Lease(NamedTuple):
    """A model to return to an agent."""

    model_name: str
    times: int
    """leased, and to be returned"""
    keep: bool


class LeaseReturns:
    """Returns models to agents; those added during a call share the next call."""

    def __init__(self, send: Callable[[str, dict[str, int]], Awaitable[None]]) -> None:
        self._send = send
        self._counts: dict[str, dict[str, int]] = {}
        """times by model, by instance"""
        self._sending: set[str] = set()

    def add(self, instance_id: str, model_name: str, times: int) -> bool:
        """Returns whether the caller must call `send`."""
        counts = self._counts.setdefault(instance_id, {})
        counts[model_name] = counts.get(model_name, 0) + times
        if instance_id in self._sending:
            return False
        self._sending.add(instance_id)
        return True

    async def send(self, instance_id: str) -> None:
        try:
            while counts := self._counts.pop(instance_id, None):
                await self._send(instance_id, counts)
        finally:
            self._sending.discard(instance_id)


MAX_KNOWN_MODELS = 100_000
RETURN_TIMEOUT_SECONDS = 5.0
ANSWER_SLACK_SECONDS = 5.0
"""for the agent's answer, beyond the wait that the request names"""


class LeasedModel(msgspec.Struct, frozen=True):
    """The agent's answer: a model leased until no request here needs it.

    `model_name` is opaque, for `/models/{model_name}/invoke`.
    """

    model_name: str
    hit: bool = False
    keep: bool = True
    """False: unloaded when returned, and requested each time"""


@dataclass(frozen=True)
class ModelLoadFailure:
    """The agent's status and message."""

    status: int
    message: str


class _Failure(msgspec.Struct, frozen=True):
    message: str = ""


class ModelWaiter(Protocol):
    """A request that waits for a model."""

    def model_loaded(self, model: LeasedModel) -> None: ...

    def model_failed(self, failure: ModelLoadFailure) -> None: ...


_Key = tuple[str, str]
"""(instance, target model)"""


class ModelLeases:
    """Models known here to be loaded; agents and containers may know of changes first.

    Instances are identified by `RoutedInstance.model_holder_id`.
    """

    def __init__(self, agent: Pool) -> None:
        self._agent = agent
        self._names: dict[_Key, str] = {}
        self._users: dict[_Key, int] = {}
        """requests placed on an instance"""
        self._leases: dict[_Key, _Lease] = {}
        self._waiting: dict[_Key, list[ModelWaiter]] = {}
        self._used: dict[str, set[str]] = {}
        self._returns = LeaseReturns(self._send_returns)
        self._runs: Mapping[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, instance_id: str, target_model: str) -> str | None:
        return self._names.get((instance_id, target_model))

    def holds(self, instance_id: str, target_model: str) -> bool:
        return (instance_id, target_model) in self._names

    def begin(self, instance_id: str, target_model: str) -> None:
        """Counts a request that was placed on the instance: it keeps the lease."""
        key = (instance_id, target_model)
        self._users[key] = self._users.get(key, 0) + 1

    def end(self, instance_id: str, target_model: str) -> None:
        """Ends what `begin` began; the last request returns the lease."""
        key = (instance_id, target_model)
        name = self._names.get(key)
        if name is not None:
            self._note_use(instance_id, name)
        users = self._users[key] - 1
        if users:
            self._users[key] = users
        else:
            del self._users[key]
            if key in self._leases:
                self._return(key)

    def load(
        self,
        instance_id: str,
        target_model: str,
        waiter: ModelWaiter,
        wait_seconds: float,
        short_of_memory: bool = False,
    ) -> None:
        """Has the agent load a model, once for all waiters.

        `short_of_memory`: the instance holds it but lacked memory to answer.
        """
        key = (instance_id, target_model)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(waiter)
            return
        self._waiting[key] = [waiter]
        self._spawn(self._load(key, wait_seconds, short_of_memory))

    def cancel(self, instance_id: str, target_model: str, waiter: ModelWaiter) -> None:
        """Stops waiting; the loading goes on."""
        waiting = self._waiting.get((instance_id, target_model), [])
        if waiter in waiting:
            waiting.remove(waiter)

    def forget(self, instance_id: str, target_model: str) -> None:
        self._names.pop((instance_id, target_model), None)

    def keep_only(self, runs: Mapping[str, str]) -> None:
        """Forgets instances that are gone or restarted; `runs`: run ids by instance."""
        same = {
            instance_id
            for instance_id, run in runs.items()
            if self._runs.get(instance_id, run) == run
        }
        self._runs = runs
        self._names = {key: name for key, name in self._names.items() if key[0] in same}
        self._leases = {key: lease for key, lease in self._leases.items() if key[0] in same}
        self._used = {key: names for key, names in self._used.items() if key in same}

    async def report_use(self, timeout_seconds: float) -> None:
        """Tells agents which models were used, so that they unload others."""
        for key in self._users:
            if (name := self._names.get(key)) is not None:
                self._note_use(key[0], name)
        used, self._used = self._used, {}
        for instance_id, names in used.items():
            try:
                await self._touch(instance_id, {"model_names": sorted(names)}, timeout_seconds)
            except Unavailable as error:
                log.debug("The use of models could not be reported to the agent: %s", error)
                return

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, key: _Key, wait_seconds: float, short_of_memory: bool) -> None:
        instance_id, target_model = key
        path = f"/instances/{quote(instance_id)}/models"
        request = {
            "target_model": target_model,
            "wait_seconds": wait_seconds,
            "short_of_memory": short_of_memory,
        }
        body = msgspec.json.encode(request)
        outcome: LeasedModel | ModelLoadFailure
        try:
            answer = await call(
                self._agent, "POST", path, body, wait_seconds + ANSWER_SLACK_SECONDS
            )
            outcome = _outcome(answer.status, answer.body)
        except (Unavailable, ValueError) as error:
            outcome = ModelLoadFailure(503, f"The agent of the instance does not answer: {error}")
        self._finish(key, outcome)

    def _finish(self, key: _Key, outcome: LeasedModel | ModelLoadFailure) -> None:
        waiting = self._waiting.pop(key)
        if isinstance(outcome, ModelLoadFailure):
            for waiter in waiting:
                waiter.model_failed(outcome)
            return
        if len(self._names) >= MAX_KNOWN_MODELS:
            del self._names[next(iter(self._names))]
        self._names[key] = outcome.model_name
        lease = self._leases.get(key)
        times = 1 if lease is None else lease.times + 1
        self._leases[key] = _Lease(outcome.model_name, times, outcome.keep)
        for waiter in waiting:
            waiter.model_loaded(outcome)
        if key not in self._users and key in self._leases:
            self._return(key)  # all waiters have left

    def _return(self, key: _Key) -> None:
        lease = self._leases.pop(key)
        if not lease.keep:
            self._names.pop(key, None)
        if self._returns.add(key[0], lease.model_name, lease.times):
            self._spawn(self._returns.send(key[0]))

    async def _send_returns(self, instance_id: str, counts: dict[str, int]) -> None:
        try:
            await self._touch(instance_id, {"given_back": counts}, RETURN_TIMEOUT_SECONDS)
        except Unavailable as error:
            # The agent notices by itself, as the models are not reported used.
            log.debug("Models could not be returned to the agent: %s", error)

    async def _touch(self, instance_id: str, report: object, timeout_seconds: float) -> None:
        path = f"/instances/{quote(instance_id)}/models/touch"
        await call(self._agent, "POST", path, msgspec.json.encode(report), timeout_seconds)

    def _note_use(self, instance_id: str, name: str) -> None:
        used = self._used.get(instance_id)
        if used is None:
            used = self._used[instance_id] = set()
        used.add(name)


def _outcome(status: int, answer: bytes) -> LeasedModel | ModelLoadFailure:
    if status == 200:
        return msgspec.json.decode(answer, type=LeasedModel)
    return ModelLoadFailure(status, msgspec.json.decode(answer, type=_Failure).message)
