"""Which worker holds a sticky session: what the user's code remembers of it is in one process."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

__all__ = ["SESSION", "Affinity"]

T = TypeVar("T")

SESSION = b"x-amzn-sagemaker-session-id"
MOST_SESSIONS = 10_000
"""Then those that were used longest ago are forgotten."""

_NEW = b"NEW_SESSION"
_BEGUN, _CLOSED = SESSION.decode(), "x-amzn-sagemaker-closed-session-id"


class Affinity(Generic[T]):
    def __init__(self) -> None:
        self._holders: OrderedDict[str, T] = OrderedDict()

    def holder(self, asked: Mapping[bytes, bytes]) -> T | None:
        """Where the request with these headers has to go, if that matters."""
        if (session := asked.get(SESSION)) is None or session == _NEW:
            return None
        name = session.decode("latin-1")
        holder = self._holders.get(name)
        if holder is not None:
            self._holders.move_to_end(name)
        return holder

    def learn(self, holder: T, answered: Iterable[tuple[str, str]]) -> None:
        """From the headers of an answer, which begin a session or end one."""
        for header, value in answered:
            name = value.partition(";")[0].strip()
            if header.lower() == _BEGUN:
                self._holders[name] = holder
                if len(self._holders) > MOST_SESSIONS:
                    self._holders.popitem(last=False)
            elif header.lower() == _CLOSED:
                self._holders.pop(name, None)

    def forget(self, holder: T) -> None:
        """It is gone, and what it remembered with it."""
        for name in [name for name, each in self._holders.items() if each is holder]:
            del self._holders[name]
