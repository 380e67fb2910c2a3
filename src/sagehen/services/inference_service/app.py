"""Serves the inference service over HTTP, to holders of an API key.

POST   /<stage>/inference            create a job: {"type": …}
GET    /<stage>/inference?limit=&after=&type=   list jobs, newest first
GET    /<stage>/inference/{job}      describe a job
DELETE /<stage>/inference/{job}      stop a job

Signed requests go to S3, where such a path is an object's; so do those to a stage without a
service, except POSTs while any service exists.
"""

import asyncio
import hashlib
import hmac
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from starlette import responses
from starlette.types import Receive, Scope, Send

from sagehen.base.errors import Conflict, Invalid, NotFound, SagehenError, Unavailable
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.asgi import BodyBudget, BodyTooLarge, ClientGone, request_head, whole_response
from sagehen.frame.own_paths.access import OwnSite
from sagehen.services.inference_service import service_store as inference_services
from sagehen.services.inference_service.answers import (
    FORBIDDEN,
    NO_TOKEN,
    ServiceAnswer,
    accepted_answer,
    plain_answer,
    refused_answer,
)
from sagehen.services.inference_service.errors import Failed, Malformed, Refused
from sagehen.services.inference_service.intake import Accepted, Counts, JobIntake, JobRequest
from sagehen.services.inference_service.jobs import ServiceJobs
from sagehen.services.inference_service.service import (
    Service,
    ServiceUndeclared,
    load_service,
    undeclared_reason,
)
from sagehen.state.database import Database
from sagehen.wire.http import Request, Response
from sagehen.wire.scope import Signing, signing_of

__all__ = ["InferenceServices"]

log = logging.getLogger(__name__)

INTERNAL = "We encountered an internal error. Please try again."
LONGEST_KEY = 255
"""characters, of API keys and Idempotency-Keys"""
_PATH = re.compile(r"/([A-Za-z0-9][A-Za-z0-9_-]{0,63})/inference(?:/([^/]+))?/?")
_STATUSES: tuple[tuple[type[SagehenError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 400),
    (Unavailable, 503),
)


@dataclass(frozen=True)
class _Exchange:
    request: Request
    service: Service
    job_name: str | None
    receive: Receive


class InferenceServices:
    """Answers the services' requests and leaves others alone."""

    def __init__(
        self,
        database: Database,
        intake: JobIntake,
        jobs: ServiceJobs,
        counts: Counts,
        site: OwnSite,
        bodies: BodyBudget,
        own: InferenceServiceSettings,
    ) -> None:
        self._own = own
        self._database = database
        self._site = site
        self._bodies = bodies
        # Keyless requests get half of the memory at most.
        self._keyless_bodies = bodies.part(
            bodies.max_bytes // 2,
            "Too many requests without an API key come at once. Try again in a moment.",
        )
        self._intake = intake
        self._jobs = jobs
        self._counts = counts
        self._handlers: dict[tuple[str, bool], Callable[[_Exchange], Awaitable[ServiceAnswer]]] = {
            ("POST", False): self._post,
            ("GET", False): self._list,
            ("GET", True): self._describe,
            ("DELETE", True): self._stop,
        }

    async def answers(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Returns False, and does nothing, if the request is not for a service."""
        request = request_head(scope)
        path = _PATH.fullmatch(request.raw_path)
        if path is None or _is_signed(request):
            return False
        try:
            service = await asyncio.to_thread(self._service, path[1])
            is_ours = service is not None or await self._means_missing_service(request, path)
        except Exception as error:
            await _response(_failure(error))(scope, receive, send)
            return True
        if not is_ours:
            return False
        if service is None:
            missing = plain_answer(404, f"No service has the stage {path[1]}.")
            await _response(missing)(scope, receive, send)
            return True
        job_name = None if path[2] is None else unquote(path[2])
        answer = await self._answer(_Exchange(request, service, job_name, receive))
        if answer is not None:
            await _response(answer)(scope, receive, send)
        return True

    async def _means_missing_service(self, request: Request, path: re.Match[str]) -> bool:
        """Returns whether a POST means a service, at a stage without one."""
        return (
            request.method == "POST"
            and path[2] is None
            and await asyncio.to_thread(self._any_service)
        )

    def _any_service(self) -> bool:
        with self._database.read() as connection:
            return bool(inference_services.all_services(connection))

    def _service(self, stage: str) -> Service | None:
        with self._database.read() as connection:
            service = load_service(connection, stage)
        return None if service is None or service.record.closing else service

    async def _answer(self, exchange: _Exchange) -> ServiceAnswer | None:
        handle = self._handlers.get((exchange.request.method, exchange.job_name is not None))
        if handle is None:
            return NO_TOKEN
        try:
            return await handle(exchange)
        except _Forbidden:
            self._counts.forbidden(exchange.service.stage)
            return FORBIDDEN
        except ClientGone:
            return None
        except Exception as error:
            return _failure(error)

    async def _post(self, exchange: _Exchange) -> ServiceAnswer:
        service = exchange.service
        api_key = await self._authorize(exchange)
        paused = undeclared_reason(service.record, self._own)
        if paused is not None:
            raise ServiceUndeclared(paused)
        try:
            accepted = await self._accept(exchange, api_key)
        except Refused as refused:
            self._counts.refused(service.stage, refused)
            return refused_answer(service, refused)
        self._counts.accepted(service.stage, accepted.type, accepted.queued)
        return accepted_answer(service, accepted)

    async def _accept(self, exchange: _Exchange, api_key: str) -> Accepted:
        """Turns every fault into the profile's errors. Raises Refused, ClientGone."""
        service = exchange.service
        bodies = self._bodies if service.settings.require_api_key else self._keyless_bodies
        max_bytes = min(service.settings.max_body_bytes, bodies.max_bytes)
        try:
            async with bodies.read(exchange.receive, max_bytes) as body:
                idempotency_key = _idempotency_key(exchange.request)
                request = JobRequest(body=body, api_key=api_key, idempotency_key=idempotency_key)
                return await self._intake.accept(service, request)
        except BodyTooLarge as error:
            raise Malformed(f"The body may have {max_bytes} bytes at most.") from error
        except (Refused, ClientGone):
            raise
        except SagehenError as error:
            raise Failed(str(error)) from error
        except Exception as error:
            log.exception("A job was not made.", extra={"action": "inference"})
            raise Failed(INTERNAL) from error

    async def _list(self, exchange: _Exchange) -> ServiceAnswer:
        await self._authorize(exchange)
        query = dict(parse_qsl(exchange.request.raw_query))
        return ServiceAnswer(200, await asyncio.to_thread(self._jobs.page, exchange.service, query))

    async def _describe(self, exchange: _Exchange) -> ServiceAnswer:
        await self._authorize(exchange)
        name = exchange.job_name or ""
        return ServiceAnswer(
            200, await asyncio.to_thread(self._jobs.describe, exchange.service, name)
        )

    async def _stop(self, exchange: _Exchange) -> ServiceAnswer:
        await self._authorize(exchange)
        name = exchange.job_name or ""
        return ServiceAnswer(202, await asyncio.to_thread(self._jobs.stop, exchange.service, name))

    async def _authorize(self, exchange: _Exchange) -> str:
        """Returns the API key's name, "" where none is required. Raises _Forbidden."""
        if exchange.service.settings.require_api_key:
            return await asyncio.to_thread(self._key_name, exchange.request)
        # Foreign pages cannot send a key; without required keys, only this check keeps them out.
        if self._site.foreign_page(exchange.request.headers) is not None:
            raise _Forbidden
        return ""

    def _key_name(self, request: Request) -> str:
        key = request.headers.get("x-api-key", "")
        if not 0 < len(key) <= LONGEST_KEY:
            raise _Forbidden
        digest = hashlib.sha256(key.encode("latin-1")).hexdigest()
        with self._database.read() as connection:
            record = inference_services.key_by_digest(connection, digest)
        if record is None or not hmac.compare_digest(record.key_sha256, digest):
            raise _Forbidden
        return record.name


class _Forbidden(Exception): ...


def _is_signed(request: Request) -> bool:
    """Returns whether there is an AWS signature; S3 verifies it."""
    signing = signing_of(request)
    if signing is Signing.HEADER:  # a proxy's own Authorization header is ignored
        return request.headers["authorization"].startswith("AWS")
    return signing is not Signing.NOWHERE


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Malformed(f"Idempotency-Key must have 1 to {LONGEST_KEY} printable characters.")
    return key


def _failure(error: Exception) -> ServiceAnswer:
    if isinstance(error, SagehenError):
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return plain_answer(status, str(error))
    log.error("A request failed.", exc_info=error, extra={"action": "inference"})
    return plain_answer(500, INTERNAL)


def _response(answer: ServiceAnswer) -> responses.Response:
    headers = {"content-type": "application/json", "x-amzn-requestid": str(uuid.uuid4())}
    return whole_response(Response(answer.status, {**headers, **answer.headers}, answer.data))
