"""Admission of invocations: checks signature and parameters, and chooses the variant; nothing
waits."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from sagehen.frame.routing import Random, choose_variant
from sagehen.gateway.admission.errors import (
    ErrorFactory,
    asynchronous,
    lost_session,
    missing_target_container,
    missing_target_model,
    not_direct,
    not_multi_model,
    not_yet_known,
    session_not_read,
    standing_by,
    unknown_container,
    unknown_session,
    validation_error,
)
from sagehen.gateway.admission.params import InvocationParams, ParamsReader, Target, read_target
from sagehen.gateway.routing.endpoint import Endpoint, Variant
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.routes import Routes
from sagehen.gateway.routing.sessions import NEW_SESSION, Sessions
from sagehen.http1.fields import Headers
from sagehen.wire.signatures.sigv4 import Verifier

__all__ = ["Admission", "AdmissionRequest", "Admitted"]

SIGNED_SERVICE = "sagemaker"

_NO_NEW_SESSION = (
    "A session cannot be begun with InvokeEndpointWithResponseStream, whose answer has no "
    "NewSessionId. Begin it with InvokeEndpoint."
)


class AdmissionRequest(Protocol):
    """The part of `Exchange` that admission reads."""

    method: bytes
    target: bytes
    headers: Headers
    request_id: bytes

    @property
    def fields(self) -> dict[str, str]: ...


class _SignedHead(msgspec.Struct, frozen=True):
    """The parts of a request that its signature covers."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """An admitted invocation's destination, and the header lines for its container."""

    endpoint: Endpoint
    variant: Variant
    header_lines: bytes
    target_model: str | None
    session_id: str | None = None
    instance: RoutedInstance | None = None
    """the holder of the session, which no other instance can answer"""


class Admission:
    """Admits the invocations of one operation."""

    def __init__(
        self,
        reader: ParamsReader,
        verifier: Verifier,
        routes: Routes,
        sessions: Sessions,
        errors: ErrorFactory,
        random: Random,
    ) -> None:
        self._reader = reader
        self._verifier = verifier
        self._routes = routes
        self._sessions = sessions
        self._errors = errors
        self._random = random

    def check_head(self, request: AdmissionRequest) -> None:
        """Raises AwsError if the signature cannot be valid, whatever the body will be."""
        self._verifier.check_head(
            _signed_head(request, read_target(request.target)), SIGNED_SERVICE
        )

    def admit(self, request: AdmissionRequest, body_sha256: str) -> Admitted:
        """Raises AwsError if the signature or the request is invalid."""
        target = read_target(request.target)
        head = _signed_head(request, target)
        # Unsigned bodies are accepted for predictions only, never for control.
        self._verifier.verify(head, body_sha256, service=SIGNED_SERVICE, unsigned_body=True)
        params = self._reader.read(request.headers, request.fields)
        endpoint = self._endpoint(target.endpoint)
        if params.refusal is not None:
            raise validation_error(params.refusal)
        request_id = request.request_id
        variant, instance = self._destination(endpoint, params, request_id)
        if variant.route.multi_model:
            if params.target_model is None:
                raise missing_target_model(request_id.decode())
        elif params.target_model is not None:
            raise not_multi_model(endpoint.name)
        return Admitted(
            endpoint, variant, params.header_lines, params.target_model, params.session_id, instance
        )

    def _destination(
        self, endpoint: Endpoint, params: InvocationParams, request_id: bytes
    ) -> tuple[Variant, RoutedInstance | None]:
        session_id = params.session_id
        if session_id is not None:
            if session_id != NEW_SESSION:
                return self._session_holder(endpoint, session_id, params, request_id)
            if not self._reader.operation.begins_sessions:
                raise validation_error(_NO_NEW_SESSION)
        variant = self._variant(endpoint, params.target_variant)
        if variant.direct is not None or params.target_container is not None:
            variant = _container(endpoint, variant, params.target_container, request_id)
        return variant, None

    def _session_holder(
        self, endpoint: Endpoint, session_id: str, params: InvocationParams, request_id: bytes
    ) -> tuple[Variant, RoutedInstance]:
        target_variant = params.target_variant
        try:
            session = self._sessions.find(endpoint.name, session_id)
        except OSError as error:
            raise session_not_read(error) from error
        if session is None:
            raise unknown_session(session_id, endpoint.name)
        if target_variant not in (None, session.variant):
            raise validation_error(
                f"Session {session_id} is held by production variant {session.variant}, not by "
                f"{target_variant}. Leave TargetVariant out."
            )
        variant = endpoint.variant(session.variant)
        if variant is not None:
            variant = _container(endpoint, variant, params.target_container, request_id)
            for instance in variant.instances:
                if session.is_held_by(instance):
                    return variant, instance
        raise lost_session(session_id, endpoint.name)

    def _endpoint(self, name: str) -> Endpoint:
        endpoint = self._routes.get(name)
        if endpoint is None:
            self._reader.check_name(name)
            if self._routes.leader is not None:
                raise standing_by(self._routes.leader)
            if not self._routes.are_known:
                raise not_yet_known()
            raise self._errors.endpoint_not_found(name)
        if endpoint.is_asynchronous:
            raise asynchronous(name)
        return endpoint

    def _variant(self, endpoint: Endpoint, target: str | None) -> Variant:
        if target is None:
            return endpoint.variants[choose_variant(endpoint.weights, self._random)]
        variant = endpoint.variant(target)
        if variant is None:
            names = ", ".join(each.route.name for each in endpoint.variants)
            raise validation_error(
                f"Endpoint {endpoint.name} has no production variant {target}. It has: {names}."
            )
        return variant


def _signed_head(request: AdmissionRequest, target: Target) -> _SignedHead:
    return _SignedHead(request.method.decode(), target.path, target.query, request.fields)


def _container(
    endpoint: Endpoint, variant: Variant, target: str | None, request_id: bytes
) -> Variant:
    if variant.direct is None:
        if target is not None:
            raise not_direct(endpoint.name)
        return variant
    if target is None:
        raise missing_target_container(request_id.decode(), variant.direct)
    container = variant.direct.get(target)
    if container is None:
        raise unknown_container(endpoint.name, target, variant.direct)
    return container
