"""An invocation's wait for its model to be found or loaded, and loaded again if it was lost."""

from sagehen.gateway.admission.errors import not_ready, still_loading, validation_error
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.context import InvocationCallbacks, InvocationContext
from sagehen.gateway.metrics.request_metrics import RequestMetrics
from sagehen.gateway.multimodel.model_leases import LeasedModel, ModelLoadFailure
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.wire.errors import AwsError

__all__ = ["ModelWait"]

MAX_MISSES = 2
"""times that a container may lack a model it was asked to load"""
MAX_LOADS = 4


class ModelWait:
    """Gets one invocation's model loaded."""

    __slots__ = (
        "_context",
        "_is_loading",
        "_loads",
        "_metrics",
        "_misses",
        "_model_holder_id",
        "_owner",
        "_short_of_memory",
        "_since",
        "_target_model",
        "failure",
    )

    def __init__(
        self,
        owner: InvocationCallbacks,
        target_model: str,
        metrics: RequestMetrics,
        context: InvocationContext,
    ) -> None:
        self._owner = owner
        self._target_model = target_model
        self._metrics = metrics
        self._context = context
        self._model_holder_id = ""
        """of the instance that the invocation is placed on"""
        self._misses = 0
        self._loads = 0
        self._is_loading = False
        self._since = 0.0
        """start of the last wait"""
        self._short_of_memory = False
        """the container lacked memory to answer"""
        self.failure: str | None = None
        """the last instance's reason"""

    def begin(self, instance: RoutedInstance) -> None:
        """Calls the owner at once if the model is known to be loaded."""
        self._model_holder_id = instance.model_holder_id
        name = self._context.models.find(self._model_holder_id, self._target_model)
        if name is None or self._short_of_memory:
            self._metrics.note_look_up(False)
            self._load()
        else:
            self._metrics.note_look_up(True)
            self._owner.model_ready(name)

    def _load(self) -> None:
        self._loads += 1
        self._is_loading = True
        self._since = now = self._context.monotonic()
        self._owner.model_loading()
        wait_seconds = self._owner.deadline - now
        self._context.models.load(
            self._model_holder_id, self._target_model, self, wait_seconds, self._short_of_memory
        )

    def model_missing(self, status: int) -> None:
        """The container lacks the model or, with 507, memory to use it."""
        self._misses += 1
        self._short_of_memory = status == 507
        self._metrics.note_look_up(False)
        self._context.models.forget(self._model_holder_id, self._target_model)
        self._load_again()

    def _load_again(self) -> None:
        """Loads on an instance that is chosen anew, unless the owner must stay on this one."""
        if self._owner.must_stay_on_instance:
            self._load()
        else:
            self._owner.place_again()

    def is_miss(self, answer: ContainerAnswer) -> bool:
        """Whether the container lacks the model."""
        if answer.status not in (404, 507):
            return False
        return self._misses < MAX_MISSES and not answer.is_by_model

    def timeout_error(self) -> AwsError:
        self._context.limit_hits[Limit.LOADING] += 1
        return still_loading(self._target_model)

    def release(self) -> None:
        """Stops waiting and calling the owner; the loading goes on."""
        # Breaks the reference cycle.
        del self._owner
        if self._is_loading:
            self._end()
            self._context.models.cancel(self._model_holder_id, self._target_model, self)

    # Called by ModelLeases

    def model_loaded(self, model: LeasedModel) -> None:
        if model.hit and not self._misses:
            # Another gateway loaded it: only the agent's answer was waited for.
            self._is_loading = False
            self._metrics.note_look_up(True)
        else:
            self._end()
        self._short_of_memory = False
        self._owner.model_ready(model.model_name)

    def model_failed(self, failure: ModelLoadFailure) -> None:
        self._end()
        if failure.status == 429 and self._may_wait_on():
            # The first waiter had less time than this request has.
            self._load_again()
        elif failure.status == 429:
            self._context.limit_hits[Limit.LOADING] += 1
            self._owner.fail(not_ready(failure.message))
        elif failure.status == 400:
            self._owner.fail(validation_error(failure.message))
        elif failure.status in (424, 507):
            status = 507 if failure.status == 507 else 500
            self._owner.fail_with_answer(status, failure.message.encode(), True)
        else:
            self.failure = failure.message
            self._owner.refused()

    def _may_wait_on(self) -> bool:
        remaining = self._owner.deadline - self._context.monotonic()
        return self._loads < MAX_LOADS and remaining > 1

    def _end(self) -> None:
        self._is_loading = False
        self._metrics.count_loading_wait(self._context.monotonic() - self._since)
