"""Control's client of this machine's agent, over its Unix socket, and of other machines' agents,
over TLS."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from sagehen.agent.messages import (
    ErrorMessage,
    InstanceList,
    JobSample,
    LoadedModel,
    LoadRequest,
    Sample,
    WarmRequest,
)
from sagehen.base.clock import Clock
from sagehen.base.errors import (
    Invalid,
    NobodyListens,
    NotFound,
    NotLeading,
    SagehenError,
    Unavailable,
)
from sagehen.frame.container_specs import InstanceReport, InstanceSpec
from sagehen.frame.gpus import GpuList
from sagehen.frame.job_specs import JobList, JobSpec, StopRequest
from sagehen.frame.nodes import (
    EPOCH_HEADER,
    LeaseAnswer,
    LeaseRequest,
    ModelList,
    NodeDescription,
    RunningSpecs,
)
from sagehen.http1.call import LocalAnswer, call_once, exchange
from sagehen.http1.pool import Pool, Tls

__all__ = ["AgentClient", "NodeClient"]

TIMEOUT_SECONDS = 10.0
"""besides the requested wait"""
REFUSED_SECONDS = 0.2
"""a machine that refuses a connection does so at once"""

MAX_LISTS = 4
"""versions whose lists of instances are kept: several readers may wait for changes"""

_T = TypeVar("_T")
_Reports = dict[str, InstanceReport]
"""by id"""


class AgentClient:
    """Every method raises Unavailable if the agent does not answer in time."""

    def __init__(self, socket: Path) -> None:
        self._address = f"unix:{socket}"
        self._lists: dict[int, _Reports] = {}
        """the last lists of instances, by version"""

    async def instances(self, since: int | None = None, wait_seconds: float = 0) -> InstanceList:
        """Lists instances; with `since`, once the version differs, or after `wait_seconds`."""
        # An agent of the release before does not know `changes`, and answers the whole list.
        before = None if since is None else self._lists.get(since)
        path = "/instances" + _query(since, wait_seconds) + ("" if before is None else "&changes=1")
        answer = self._decode(
            await self._request("GET", path, wait_seconds=wait_seconds), InstanceList
        )
        if answer.since is None:
            reports = {each.instance_id: each for each in answer.instances}
        elif before is not None and answer.since == since:
            reports = _changed(before, answer)
        else:
            raise Unavailable(f"The agent has answered changes since {answer.since}.")
        self._keep_list(answer.version, reports)
        return InstanceList(version=answer.version, instances=tuple(reports.values()))

    def _keep_list(self, version: int, reports: _Reports) -> None:
        self._lists.pop(version, None)
        self._lists[version] = reports
        if len(self._lists) > MAX_LISTS:
            del self._lists[next(iter(self._lists))]

    async def put_instance(self, spec: InstanceSpec) -> None:
        """Runs an instance, also again if it is FAILED. Raises Invalid."""
        path = f"/instances/{quote(spec.instance_id, safe='')}"
        self._check(await self._request("PUT", path, msgspec.json.encode(spec)))

    async def delete_instance(self, instance_id: str) -> None:
        """The instance leaves `instances` once stopped."""
        response = await self._request("DELETE", f"/instances/{quote(instance_id, safe='')}")
        if response.status != 404:
            self._check(response)

    async def keep_warm(self, images: Sequence[str]) -> None:
        """Has the node prepare for starts of containers of these images, and of no others."""
        body = msgspec.json.encode(WarmRequest(images=tuple(images)))
        self._check(await self._request("PUT", "/warm-images", body))

    async def load_model(
        self, instance_id: str, target_model: str, wait_seconds: float = 60
    ) -> LoadedModel:
        """Has a multi-model instance load a model.

        Raises:
            NotFound: the agent does not have the instance.
            Invalid: the name, object or archive is invalid.
            Unavailable: loading goes on, or the instance is stopping.
        """
        body = msgspec.json.encode(
            LoadRequest(target_model=target_model, wait_seconds=wait_seconds)
        )
        path = f"/instances/{quote(instance_id, safe='')}/models"
        response = await self._request("POST", path, body, wait_seconds=wait_seconds)
        return self._decode(response, LoadedModel)

    async def jobs(self, since: int | None = None, wait_seconds: float = 0) -> JobList:
        """Lists attempts, also ended ones until deleted; polls like `instances`."""
        path = "/jobs" + _query(since, wait_seconds)
        return self._decode(await self._request("GET", path, wait_seconds=wait_seconds), JobList)

    async def put_job(self, spec: JobSpec) -> None:
        """Runs an attempt unless its id is known. Raises Invalid."""
        self._check(
            await self._request("PUT", _job_path(spec.attempt_id), msgspec.json.encode(spec))
        )

    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None:
        """Ends an attempt unless it has ended. Raises NotFound."""
        body = msgspec.json.encode(request or StopRequest())
        self._check(await self._request("POST", f"{_job_path(attempt_id)}/stop", body))

    async def delete_job(self, attempt_id: str) -> None:
        """Kills a running attempt; it leaves `jobs` afterwards."""
        response = await self._request("DELETE", _job_path(attempt_id))
        if response.status != 404:
            self._check(response)

    async def job_samples(self) -> list[JobSample]:
        return self._decode(await self._request("GET", "/jobs/metrics"), list[JobSample])

    async def metrics(self) -> list[Sample]:
        return self._decode(await self._request("GET", "/metrics"), list[Sample])

    async def problems(self) -> list[str]:
        """Says what the node cannot do now, each with the remedy."""
        return self._decode(await self._request("GET", "/problems"), list[str])

    async def gpus(self) -> GpuList:
        return self._decode(await self._request("GET", "/gpus"), GpuList)

    async def missing_walls(self) -> list[str]:
        """The walls that do not separate containers from their machine, and why."""
        return self._decode(await self._request("GET", "/walls/missing"), list[str])

    async def check_health(self) -> None:
        self._check(await self._request("GET", "/health"))

    async def _request(
        self, method: str, path: str, body: bytes = b"", *, wait_seconds: float = 0
    ) -> LocalAnswer:
        timeout = TIMEOUT_SECONDS + wait_seconds
        return await call_once(self._address, method, path, body, timeout_seconds=timeout)

    def _decode(self, response: LocalAnswer, kind: type[_T]) -> _T:
        self._check(response)
        try:
            return msgspec.json.decode(response.body, type=kind)
        except ValueError as error:
            raise Unavailable(f"The agent's response is not valid: {error}") from error

    def _check(self, response: LocalAnswer) -> None:
        if response.status < 300:
            return
        try:
            message = msgspec.json.decode(response.body, type=ErrorMessage).message
        except ValueError:
            message = response.text
        raise _ERRORS.get(response.status, Unavailable)(message or f"HTTP {response.status}")


class NodeClient(AgentClient):
    """The leading control's client of a node of its cluster.

    Args:
        address: `host:port`.
        epoch: returns the epoch of this control; raises NotLeading while it does not lead.
    """

    def __init__(self, address: str, tls: Tls, epoch: Callable[[], int], clock: Clock) -> None:
        self._clock = clock
        self._epoch = epoch
        self._address = address
        self._lists = {}
        self._pool = Pool(f"tcp:{address}", clock, tls=tls)

    async def describe(self) -> NodeDescription:
        return self._decode(await self._request("GET", "/node"), NodeDescription)

    async def specs(self) -> RunningSpecs:
        return self._decode(await self._request("GET", "/specs"), RunningSpecs)

    async def renew_lease(self, request: LeaseRequest, timeout_seconds: float) -> LeaseAnswer:
        """Raises NotLeading where nothing was asked, and NobodyListens where it is certain that the
        agent has ended."""
        self._pool.close_idle(self._clock.monotonic())
        body = msgspec.json.encode(request)
        try:
            answer = await self._send("POST", "/lease", body, timeout_seconds)
        except NotLeading:
            raise
        except Unavailable as error:
            if await self._is_refused():
                raise NobodyListens(f"Nobody listens at {self._address}.") from error
            raise
        return self._decode(answer, LeaseAnswer)

    async def models(self) -> ModelList:
        """Returns the model data that the node has on disk."""
        return self._decode(await self._request("GET", "/models"), ModelList)

    async def read_logs(self, request: bytes) -> bytes:
        """Asks for what the node's containers have printed."""
        answer = await self._request("POST", "/logs", request)
        self._check(answer)
        return answer.body

    async def put_routes(self, table: bytes) -> None:
        self._check(await self._request("PUT", "/routes", table))

    async def change_routes(self, changes: bytes) -> bool:
        """Returns False where the agent needs the whole table: it has another one, or is of the
        release before."""
        answer = await self._request("PATCH", "/routes", changes)
        if answer.status in (404, 405, 409):
            return False
        self._check(answer)
        return True

    def close(self) -> None:
        self._pool.abort()

    async def _is_refused(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            async with asyncio.timeout(REFUSED_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            return True
        except OSError:  # includes TimeoutError
            return False
        writer.close()
        return False

    async def _request(
        self, method: str, path: str, body: bytes = b"", *, wait_seconds: float = 0
    ) -> LocalAnswer:
        return await self._send(method, path, body, TIMEOUT_SECONDS + wait_seconds)

    async def _send(
        self, method: str, path: str, body: bytes, timeout_seconds: float
    ) -> LocalAnswer:
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: localhost",
            f"{EPOCH_HEADER}: {self._epoch()}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        return await exchange(self._pool, [head, body], f"{method} {path}", timeout_seconds)


def _query(since: int | None, wait_seconds: float) -> str:
    if since is None:
        return ""
    return "?" + urlencode({"since": since, "wait_seconds": wait_seconds})


def _changed(before: _Reports, answer: InstanceList) -> _Reports:
    reports = {**before, **{each.instance_id: each for each in answer.instances}}
    for key in answer.gone:
        reports.pop(key, None)
    return reports


def _job_path(attempt_id: str) -> str:
    return f"/jobs/{quote(attempt_id, safe='')}"


_ERRORS: dict[int, type[SagehenError]] = {400: Invalid, 404: NotFound}
