"""`/_sagehen/jobs/…`: what is beyond SageMaker's operations on training jobs.

POST …/{job}/interrupt         take its capacity back: it is begun again, from its checkpoints
POST …/interrupt?count=n       the same, of so many spot jobs; of all where no count is given
"""

from typing import Any, Protocol

from starlette.requests import Request
from starlette.routing import Route

from sagehen.api.told import number_in, told
from sagehen.errors import NotFound

__all__ = ["Interrupting", "JobPaths"]

MOST_AT_ONCE = 10_000


class Interrupting(Protocol):
    """Who can take capacity back."""

    async def interrupt_job(self, name: str) -> str: ...

    async def interrupt_spot_jobs(self, count: int | None) -> list[str]: ...


class JobPaths:
    """`routes` are to be served with the other own paths."""

    def __init__(self, interrupts: Interrupting) -> None:
        self._interrupts = interrupts
        at = "/_sagehen/jobs"
        self.routes = [
            Route(at + "/interrupt", told(self._interrupt_some), methods=["POST"]),
            Route(at + "/{name}/interrupt", told(self._interrupt_one), methods=["POST"]),
        ]

    async def _interrupt_one(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        if not name.isascii() or len(name) > 63:
            raise NotFound(f"There is no training job {name[:63]!r}.")
        return {"interrupted": [await self._interrupts.interrupt_job(name)]}

    async def _interrupt_some(self, request: Request) -> dict[str, Any]:
        given = "count" in request.query_params
        count = number_in(request, "count", 0, 0, MOST_AT_ONCE) if given else None
        return {"interrupted": await self._interrupts.interrupt_spot_jobs(count)}
