"""Recognizes a container whose server listens on another port than SageMaker requires.

Waiting for it until the start-up time-out would be eight minutes of silence. Many servers open
other ports first, for metrics or management: so a port is wrong only if it answers `/ping` with
200, for a while, while nothing listens where it must.
"""

from collections.abc import Awaitable, Callable, Iterable

from sagehen.base.errors import Unavailable
from sagehen.http1.call import call_once

__all__ = ["WrongPort", "answers_ping"]

WRONG_PORT_SECONDS = 5.0
CHECK_SECONDS = 1.0
MAX_PORTS = 8
"""probed in one check"""


class WrongPort:
    """Decides from repeated readings of the listening ports.

    Args:
        required: where the container must listen.
    """

    def __init__(self, required: int) -> None:
        self.required = required
        self._since: dict[int, float] = {}
        self._next_check = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._next_check

    async def check(
        self, now: float, listening: Iterable[int], answers: Callable[[int], Awaitable[bool]]
    ) -> int | None:
        """Returns the wrong port once it is certain.

        Args:
            now: monotonic seconds.
            answers: whether a port answers `/ping` with 200.
        """
        self._next_check = now + CHECK_SECONDS
        ports = sorted(listening)
        if self.required in ports:
            self._since.clear()
            return None
        answering = [port for port in ports[:MAX_PORTS] if await answers(port)]
        self._since = {port: self._since.get(port, now) for port in answering}
        certain = [port for port, since in self._since.items() if now - since >= WRONG_PORT_SECONDS]
        return certain[0] if certain else None


async def answers_ping(address: str, timeout_seconds: float) -> bool:
    try:
        answer = await call_once(address, "GET", "/ping", timeout_seconds=timeout_seconds)
    except Unavailable:
        return False
    return answer.status == 200
