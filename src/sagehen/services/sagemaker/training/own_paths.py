"""`/_sagehen/jobs/…`: interrupting training jobs, as SageMaker does with spot instances.

POST …/{job}/interrupt         restart the job from its checkpoints
POST …/interrupt?count=n       the same for `count` spot jobs, by default all
"""

from typing import Any, Protocol

from sagehen.base.errors import NotFound
from sagehen.frame.own_paths.routes import OwnPathRequest, number_in, own_route

__all__ = ["Interrupting", "JobPaths"]

MAX_COUNT = 10_000


class Interrupting(Protocol):
    async def interrupt_job(self, name: str) -> str: ...

    async def interrupt_spot_jobs(self, count: int | None) -> list[str]: ...


class JobPaths:
    """Serves the requests to interrupt jobs."""

    def __init__(self, interrupts: Interrupting) -> None:
        self._interrupts = interrupts
        at = "/_sagehen/jobs"
        self.routes = [
            own_route(at + "/interrupt", {"POST": self._interrupt_some}),
            own_route(at + "/{name}/interrupt", {"POST": self._interrupt_one}),
        ]

    async def _interrupt_one(self, request: OwnPathRequest) -> dict[str, Any]:
        name = request.path["name"]
        if not name.isascii() or len(name) > 63:
            raise NotFound(f"There is no training job {name[:63]!r}.")
        return {"interrupted": [await self._interrupts.interrupt_job(name)]}

    async def _interrupt_some(self, request: OwnPathRequest) -> dict[str, Any]:
        has_count = "count" in request.query
        count = number_in(request.query, "count", 0, 0, MAX_COUNT) if has_count else None
        return {"interrupted": await self._interrupts.interrupt_spot_jobs(count)}
