"""Which endpoints a pass must plan: those whose facts may be different from when they were planned
last. For all others, a plan would change nothing."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sagehen.services.sagemaker.hosting.reconciler.plan import EndpointStep, Reports
from sagehen.services.sagemaker.offline_results.stores import NO_STORES, StoreStates

__all__ = ["Agenda", "SharedFacts", "changed_reports"]


@dataclass(frozen=True, kw_only=True)
class SharedFacts:
    """The facts of a pass that concern several endpoints."""

    reports: Reports | None = None
    """None while the agent is away"""
    leaving: frozenset[str] = frozenset()
    """instances on machines that are drained"""
    stores: StoreStates = NO_STORES
    backlogs: Mapping[str, int] = field(default_factory=dict)
    """unfinished requests, by endpoint"""
    busy: frozenset[str] = frozenset()
    """instances with asynchronous requests; concerns endpoints that are on the agenda anyway"""


class Agenda:
    """Remembers what endpoints wait for, and the facts with which they were planned."""

    def __init__(self) -> None:
        self._restless: set[str] = set()
        """endpoints with something under way, which each pass plans"""
        self._times: dict[str, tuple[float | None, float | None]] = {}
        """`wake_at` and `idle_at`, by endpoint"""
        self._before = SharedFacts()

    def restart(self) -> None:
        """Forgets all. The next pass must plan every endpoint."""
        self._restless.clear()
        self._times.clear()
        self._before = SharedFacts()

    def concerns_all(self, shared: SharedFacts) -> bool:
        """Whether the change since the last pass may concern every endpoint."""
        before = self._before
        went_or_came = (before.reports is None) != (shared.reports is None)
        return went_or_came or shared.stores != before.stores

    def due(self, shared: SharedFacts, endpoint_of: Mapping[str, str], now: float) -> set[str]:
        """Returns the endpoints to plan.

        Args:
            endpoint_of: the endpoint of each instance.
        """
        before = self._before
        instances = changed_reports(before.reports or {}, shared.reports or {})
        instances |= before.leaving ^ shared.leaving
        names = {endpoint_of[key] for key in instances if key in endpoint_of}
        names |= {name for name, _ in before.backlogs.items() ^ shared.backlogs.items()}
        names |= self._restless
        names.update(
            name
            for name, times in self._times.items()
            if any(at is not None and at <= now for at in times)
        )
        return names

    def note(self, name: str, step: EndpointStep, *, is_at_rest: bool) -> None:
        """Notes what an endpoint waits for after this step.

        Args:
            is_at_rest: whether its rows ask for nothing more.
        """
        if is_at_rest and not (step.start or step.stop):
            self._restless.discard(name)
        else:
            self._restless.add(name)
        self._times.pop(name, None)
        if step.wake_at is not None or step.idle_at is not None:
            self._times[name] = step.wake_at, step.idle_at

    def forget(self, names: Iterable[str]) -> None:
        """Drops endpoints that are gone."""
        for name in names:
            self._restless.discard(name)
            self._times.pop(name, None)

    def close(self, shared: SharedFacts) -> None:
        """Ends a pass: all that were due have been planned with these facts."""
        self._before = shared

    @property
    def is_at_rest(self) -> bool:
        return not self._restless

    @property
    def wake_at(self) -> float | None:
        return min((at for at, _ in self._times.values() if at is not None), default=None)

    @property
    def idle_at(self) -> float | None:
        return min((at for _, at in self._times.values() if at is not None), default=None)


def changed_reports(before: Reports, after: Reports) -> set[str]:
    """Returns the instances whose reports are new, different or gone."""
    gone: Collection[str] = before.keys() - after.keys()
    different = {
        key
        for key, report in after.items()
        if (known := before.get(key)) is not report and known != report
    }
    return different | set(gone)
