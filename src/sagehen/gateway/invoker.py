"""What all invocations of this process share: the way in, and the bounds."""

from collections.abc import Iterable
from itertools import takewhile
from typing import NoReturn, Protocol

from sagehen.clock import Clock
from sagehen.gateway.access_log import AccessLog
from sagehen.gateway.admission import Admission
from sagehen.gateway.body import Held
from sagehen.gateway.choose import Random
from sagehen.gateway.counters import InFlight
from sagehen.gateway.faults import Texts, unavailable
from sagehen.gateway.limits import Limit, LimitHits
from sagehen.gateway.models import LoadedModels
from sagehen.gateway.sessions import Sessions
from sagehen.gateway.shadow import Shadows
from sagehen.settings import Settings

__all__ = ["Expiring", "Invoker"]

_SHARE_OF_TIMEOUT = 0.995
"""SDKs give up after the same 60 s: answered a moment before, they learn what happened."""


class Expiring(Protocol):
    deadline: float

    def expire(self) -> None: ...

    def shut_down(self) -> None: ...


class Invoker:
    """One per process; `random` gives numbers in [0, 1)."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        models: LoadedModels,
        texts: Texts,
        clock: Clock,
        random: Random,
        stream_admission: Admission,
        sessions: Sessions,
        shadows: Shadows,
        limit_hits: LimitHits,
        access_log: AccessLog | None = None,
    ) -> None:
        self.admission = admission
        self.stream_admission = stream_admission
        self.models = models
        self.sessions = sessions
        self.shadows = shadows
        self.limit_hits = limit_hits
        self.texts = texts
        self.random = random
        self.access_log = access_log
        self.monotonic = clock.monotonic
        self.max_body_bytes = settings.max_invocation_body_bytes
        self.max_stage_bytes = settings.max_pipeline_body_bytes
        self.patience_seconds = settings.invocation_timeout_seconds * _SHARE_OF_TIMEOUT
        self.stream_patience_seconds = settings.response_stream_timeout_seconds
        self.held = Held(settings.max_held_body_bytes)
        self._max_live = settings.max_queued_invocations
        self._live: dict[Expiring, InFlight] = {}
        """In the order of their deadlines, as all have the same patience."""
        self._streams: dict[Expiring, InFlight] = {}
        """Those whose answer has begun to be streamed; in the same order."""

    def enter(self, invocation: Expiring, in_flight: InFlight) -> None:
        """`invocation` is worked on from now until `leave`; `in_flight` counts its variant's."""
        self._live[invocation] = in_flight
        in_flight.enter()

    def enter_stream(self, invocation: Expiring) -> None:
        """Its answer has begun: from here on it has the time of a stream."""
        in_flight = self._live.pop(invocation, None)
        if in_flight is not None:
            invocation.deadline = self.monotonic() + self.stream_patience_seconds
            self._streams[invocation] = in_flight

    def leave(self, invocation: Expiring) -> None:
        in_flight = self._live.pop(invocation, None) or self._streams.pop(invocation, None)
        if in_flight is not None:
            in_flight.leave()

    def refuse_body(self) -> NoReturn:
        """Raises AwsError: no more data may be held now."""
        self.limit_hits[Limit.BODIES] += 1
        raise unavailable("This gateway holds all the data it can. Try again in a moment.")

    def check_room(self) -> None:
        """Raises AwsError: no more invocations may be held now."""
        if len(self._live) + len(self._streams) >= self._max_live:
            self.limit_hits[Limit.QUEUE] += 1
            raise unavailable(
                f"This gateway works on {self._max_live} invocations already "
                "(max_queued_invocations). Try again in a moment."
            )

    def shut_down(self) -> None:
        """Cut off the answers that are still being streamed."""
        for invocation in list(self._streams):
            invocation.shut_down()

    def expire(self) -> None:
        """End the invocations whose time is over. To be called several times a second."""
        now = self.monotonic()
        for invocation in (*_overdue(self._live, now), *_overdue(self._streams, now)):
            invocation.expire()


def _overdue(live: Iterable[Expiring], now: float) -> list[Expiring]:
    return list(takewhile(lambda invocation: invocation.deadline <= now, live))
