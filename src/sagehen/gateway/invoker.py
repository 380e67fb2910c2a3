"""What all invocations of this process share."""

from collections.abc import Callable
from dataclasses import dataclass

from sagehen.gateway.access_log import AccessLog
from sagehen.gateway.admission import Admission
from sagehen.gateway.body import Held
from sagehen.gateway.choose import Random
from sagehen.gateway.faults import Texts
from sagehen.gateway.instance import Instance
from sagehen.gateway.limits import InvocationLimits, LimitHits
from sagehen.gateway.live import Live
from sagehen.gateway.models import LoadedModels
from sagehen.gateway.sessions import Sessions
from sagehen.gateway.shadow import Shadows

__all__ = ["Invoker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Invoker:
    """One per process: the way in, the ways on, and the bounds."""

    admission: Admission
    stream_admission: Admission
    models: LoadedModels
    sessions: Sessions
    shadows: Shadows
    texts: Texts
    live: Live
    held: Held
    limits: InvocationLimits
    limit_hits: LimitHits
    access_log: AccessLog | None
    monotonic: Callable[[], float]
    why_ended: Callable[[Instance], str | None]
    """Why a container of that instance ended; empty: it is not known, None: not yet."""
    random: Random
    """Gives numbers in [0, 1)."""
