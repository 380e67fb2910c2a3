"""What is swept now and then, for as long as control lives."""

import logging
from collections.abc import Awaitable, Callable

from sagehen.clock import Clock
from sagehen.patience import AWAY

__all__ = ["keep_sweeping"]

log = logging.getLogger(__name__)


async def keep_sweeping(
    sweep: Callable[[], Awaitable[object]], seconds: float, clock: Clock, what: str
) -> None:
    """Sweep every `seconds` until cancelled; what fails is logged and tried again.

    `what` is swept, as the log says it.
    """
    about = {"action": "sweep"}
    while True:
        try:
            await sweep()
        except AWAY as error:
            log.error("The %s cannot be swept: %s", what, error, extra=about)
        except Exception:
            log.exception("Sweeping the %s failed and is tried again.", what, extra=about)
        await clock.sleep(seconds)
