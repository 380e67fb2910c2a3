"""The instances of one owner on the agent: what it reports of them, and requests to it."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.frame.container_specs import (
    InstanceOwner,
    InstanceReport,
    InstanceSpec,
    InstanceState,
)
from sagehen.frame.state_watch import StateWatch, Versioned

__all__ = ["AgentInstances", "InstanceAgent", "InstanceReports"]

log = logging.getLogger(__name__)

LONGEST_REASON = 1024
"""characters; from SageMaker's model"""


class InstanceReports(Versioned, Protocol):
    """The agent's answer about instances."""

    @property
    def instances(self) -> Sequence[InstanceReport]: ...


class InstanceAgent(Protocol):
    """The agent's methods for instances; all raise Unavailable while it is away."""

    async def instances(
        self, since: int | None = None, wait_seconds: float = 0
    ) -> InstanceReports: ...

    async def put_instance(self, spec: InstanceSpec) -> None: ...

    async def delete_instance(self, instance_id: str) -> None: ...

    async def keep_warm(self, images: Sequence[str]) -> None: ...


class AgentInstances:
    """The agent as one reconciler sees it.

    Args:
        wake: has the reconciler look again.
        quiet: as of StateWatch.
    """

    def __init__(
        self,
        agent: InstanceAgent,
        owner: InstanceOwner,
        clock: Clock,
        wake: Callable[[], None],
        quiet: bool = False,
    ) -> None:
        self._agent = agent
        self._owner = owner
        self._wake = wake
        self._watch: StateWatch[InstanceReports, InstanceReport] = StateWatch(
            agent.instances, self._by_id, clock, wake, quiet=quiet
        )
        self._refused: dict[str, InstanceReport] = {}
        self._warm = False

    def watch(self) -> Coroutine[Any, Any, None]:
        """Follows the agent's reports; to be run beside the reconciler."""
        return self._watch.run()

    @property
    def reports(self) -> Mapping[str, InstanceReport] | None:
        """Reports by id; None until the agent has answered."""
        reports = self._watch.reports
        return reports if reports is None or not self._refused else {**self._refused, **reports}

    async def request(self, start: Sequence[InstanceSpec], stop: Sequence[str]) -> None:
        """Sends requests to the agent; the next pass repeats failed ones."""
        try:
            for spec in start:
                await self._start(spec)
            for instance_id in stop:
                await self._agent.delete_instance(instance_id)
                if self._refused.pop(instance_id, None):
                    self._wake()  # the agent will not report it
        except Unavailable as error:
            _warn(error)

    async def keep_warm(self, images: Sequence[str]) -> bool:
        """Has the agent prepare for starts of these images; returns whether it knows. Each pass
        repeats it, as an agent that was restarted knows of none."""
        if images or self._warm:
            try:
                await self._agent.keep_warm(images)
            except SagehenError as error:
                _warn(error)
                return False
            self._warm = bool(images)
        return True

    async def stop_all(self) -> None:
        for report in (self._watch.reports or {}).values():
            if report.state is not InstanceState.STOPPING:
                try:
                    await self._agent.delete_instance(report.instance_id)
                except SagehenError as error:
                    _warn(error)

    async def _start(self, spec: InstanceSpec) -> None:
        try:
            await self._agent.put_instance(spec)
            self._refused.pop(spec.instance_id, None)
        except Unavailable:
            raise
        except SagehenError as error:
            # Counts as a failed instance; otherwise it would be requested forever.
            self._refused[spec.instance_id] = InstanceReport(
                instance_id=spec.instance_id,
                state=InstanceState.FAILED,
                failure_reason=str(error)[:LONGEST_REASON],
                owner=self._owner,
            )
            self._wake()

    def _by_id(self, answer: InstanceReports) -> dict[str, InstanceReport]:
        return {
            report.instance_id: report for report in answer.instances if report.owner is self._owner
        }


def _warn(error: SagehenError) -> None:
    about = {"action": "ask_agent", "reason": str(error)}
    log.warning("The agent did not take what it was asked.", extra=about)
