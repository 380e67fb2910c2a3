"""An invocation's wait for its model to be found or loaded, and loaded again if it was lost."""

from typing import Protocol

from sagehen.gateway.admission.errors import not_ready, still_loading, validation_error
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.invoker import Invoker
from sagehen.gateway.metrics.request_metrics import Account
from sagehen.gateway.multimodel.models import LoadFailure, ModelHolder
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.wire.errors import AwsError

__all__ = ["ModelWait", "ModelWaitCallbacks"]

MAX_MISSES = 2
"""times that a container may lack a model it was asked to load"""
MAX_LOADS = 4


class ModelWaitCallbacks(Protocol):
    """Callbacks to the invocation."""

    deadline: float

    def model_ready(self, model_name: str) -> None: ...

    def look_again(self) -> None:
        """The instance lacks the model; another may be chosen."""

    def model_refused(self, status: int, message: str) -> None: ...

    def refused(self) -> None:
        """The agent cannot load the model here."""

    def fail(self, error: AwsError) -> None: ...


class ModelWait:
    """Gets one invocation's model loaded."""

    __slots__ = (
        "_account",
        "_holder",
        "_invoker",
        "_loads",
        "_misses",
        "_owner",
        "_short_of_memory",
        "_since",
        "_target_model",
        "failure",
    )

    def __init__(
        self, owner: ModelWaitCallbacks, target_model: str, account: Account, invoker: Invoker
    ) -> None:
        self._owner = owner
        self._target_model = target_model
        self._account = account
        self._invoker = invoker
        self._holder = ""
        """`RoutedInstance.holder` of the instance that is asked"""
        self._misses = 0
        self._loads = 0
        self._since: float | None = None
        """start of the current wait"""
        self._short_of_memory = False
        """the container lacked memory to answer"""
        self.failure: str | None = None
        """the last instance's reason"""

    @property
    def is_on(self) -> bool:
        return self._since is not None

    def begin(self, instance: RoutedInstance) -> None:
        self._holder = instance.holder
        name = self._invoker.models.find(self._holder, self._target_model)
        if name is None or self._short_of_memory:
            self._account.look_up(False)
            self.load()
        else:
            self._account.look_up(True)
            self._owner.model_ready(name)

    def load(self) -> None:
        self._loads += 1
        self._since = now = self._invoker.monotonic()
        wait_seconds = self._owner.deadline - now
        self._invoker.models.load(
            self._holder, self._target_model, self, wait_seconds, self._short_of_memory
        )

    def lost(self, status: int) -> None:
        """The container lacks the model or, with 507, memory to use it."""
        self._misses += 1
        self._short_of_memory = status == 507
        self._account.look_up(False)
        self._invoker.models.forget(self._holder, self._target_model)
        self._owner.look_again()

    def is_miss(self, answer: ContainerAnswer) -> bool:
        """Whether the container lacks the model."""
        if answer.status not in (404, 507):
            return False
        return self._misses < MAX_MISSES and not answer.is_by_model

    def late(self) -> AwsError:
        self._invoker.limit_hits[Limit.LOADING] += 1
        return still_loading(self._target_model)

    def let_go(self) -> None:
        """Stops waiting and calling the owner."""
        # Breaks the reference cycle.
        del self._owner
        if self._since is not None:
            self._end()
            self._invoker.models.leave(self._holder, self._target_model, self)

    # Called by LoadedModels

    def model_loaded(self, model: ModelHolder) -> None:
        if model.hit and not self._misses:
            # Another gateway loaded it: only the agent's answer was waited for.
            self._since = None
            self._account.look_up(True)
        self._end()
        self._short_of_memory = False
        self._owner.model_ready(model.model_name)

    def model_failed(self, failure: LoadFailure) -> None:
        self._end()
        if failure.status == 429 and self._may_wait_on():
            # The first waiter had less time than this request has.
            self._owner.look_again()
        elif failure.status == 429:
            self._invoker.limit_hits[Limit.LOADING] += 1
            self._owner.fail(not_ready(failure.message))
        elif failure.status == 400:
            self._owner.fail(validation_error(failure.message))
        elif failure.status in (424, 507):
            self._owner.model_refused(507 if failure.status == 507 else 500, failure.message)
        else:
            self.failure = failure.message
            self._owner.refused()

    def _may_wait_on(self) -> bool:
        return self._loads < MAX_LOADS and self._owner.deadline - self._invoker.monotonic() > 1

    def _end(self) -> None:
        since, self._since = self._since, None
        if since is not None:
            self._account.wait_for_model(self._invoker.monotonic() - since)
