"""Whether an invocation may go on, and to which variant: everything that needs no waiting."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from sagehen.gateway.choose import Random, choose_variant
from sagehen.gateway.faults import (
    COMPONENT_NOT_ALLOWED,
    Texts,
    lost_session,
    missing_target_model,
    not_multi_model,
    unknown_session,
    validation_error,
)
from sagehen.gateway.parameters import ParameterCheck
from sagehen.gateway.routes import Endpoint, Instance, Routes, Variant
from sagehen.gateway.sessions import NEW_SESSION, Sessions
from sagehen.wire.http import Request
from sagehen.wire.sigv4 import Verifier

__all__ = ["NOT_OF_INVOCATIONS", "NOT_OF_STREAMS", "Admission", "Admitted", "endpoint_name"]

SIGNED_SERVICE = "sagemaker"

NOT_OF_INVOCATIONS = {
    "x-amzn-sagemaker-enable-explanations": (
        "EnableExplanations is not implemented by Sagehen yet. Leave it out."
    ),
    "x-amzn-sagemaker-target-container-hostname": (
        "TargetContainerHostname is only for endpoints with several containers in Direct mode, "
        "which Sagehen does not implement yet. Leave it out."
    ),
    "x-amzn-sagemaker-inference-component": COMPONENT_NOT_ALLOWED,
}
"""Headers that InvokeEndpoint refuses, and why."""

NOT_OF_STREAMS = {
    **NOT_OF_INVOCATIONS,
    "x-amzn-sagemaker-target-model": (
        "InvokeEndpointWithResponseStream does not take TargetModel. Use InvokeEndpoint, or an "
        "endpoint with one model."
    ),
    "x-amzn-sagemaker-enable-explanations": (
        "InvokeEndpointWithResponseStream does not take EnableExplanations. Leave it out."
    ),
}
"""Headers that InvokeEndpointWithResponseStream refuses, and why."""

_NO_NEW_SESSION = (
    "A session cannot be begun with InvokeEndpointWithResponseStream, whose answer has no "
    "NewSessionId. Begin it with InvokeEndpoint."
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Where an invocation goes."""

    endpoint: Endpoint
    variant: Variant
    target_model: str | None
    session_id: str | None = None
    instance: Instance | None = None
    """Where its session is: no other can answer."""


class Admission:
    """Holds what every invocation of one operation is measured against.

    `refused` says why a header is not taken, by its name in lower case. `begins_sessions`: an
    answer of the operation can tell the id of a new one.
    """

    def __init__(
        self,
        verifier: Verifier,
        check: ParameterCheck,
        routes: Routes,
        texts: Texts,
        random: Random,
        sessions: Sessions,
        refused: Mapping[str, str] = NOT_OF_INVOCATIONS,
        begins_sessions: bool = True,
    ) -> None:
        self._sessions = sessions
        self._refused = refused
        self._begins_sessions = begins_sessions
        self._verifier = verifier
        self._check = check
        self._routes = routes
        self._texts = texts
        self._random = random

    def admit(self, request: Request, body_sha256: str, request_id: bytes) -> Admitted:
        """Raises AwsError: who asks is not known, or what is asked for cannot be."""
        # What a prediction is made from may be left open; what control is to do never is.
        self._verifier.verify(request, body_sha256, service=SIGNED_SERVICE, unsigned_body=True)
        headers = request.headers
        self._check.check(headers)
        endpoint = self._endpoint(request.raw_path)
        for header, message in self._refused.items():
            if header in headers:
                raise validation_error(message)
        target_variant = headers.get("x-amzn-sagemaker-target-variant")
        session_id = headers.get("x-amzn-sagemaker-session-id")
        instance = None
        if session_id is not None and session_id != NEW_SESSION:
            variant, instance = self._held(endpoint, session_id, target_variant)
        elif session_id is not None and not self._begins_sessions:
            raise validation_error(_NO_NEW_SESSION)
        else:
            variant = self._variant(endpoint, target_variant)
        target_model = _target_model(endpoint, variant, headers, request_id)
        return Admitted(endpoint, variant, target_model, session_id, instance)

    def _held(
        self, endpoint: Endpoint, session_id: str, target_variant: str | None
    ) -> tuple[Variant, Instance]:
        session = self._sessions.find(endpoint.name, session_id)
        if session is None:
            raise unknown_session(session_id, endpoint.name)
        if target_variant not in (None, session.variant):
            raise validation_error(
                f"Session {session_id} is held by production variant {session.variant}, not by "
                f"{target_variant}. Leave TargetVariant out."
            )
        variant = endpoint.variant(session.variant)
        for instance in () if variant is None else variant.instances:
            if variant is not None and instance.instance_id == session.instance_id:
                return variant, instance
        raise lost_session(session_id, endpoint.name)

    def _endpoint(self, raw_path: str) -> Endpoint:
        name = endpoint_name(raw_path)
        endpoint = self._routes.get(name)
        if endpoint is None:
            self._check.check_name(name)
            raise self._texts.endpoint_not_found(name)
        return endpoint

    def _variant(self, endpoint: Endpoint, target: str | None) -> Variant:
        if target is None:
            return endpoint.variants[choose_variant(endpoint.weights, self._random)]
        variant = endpoint.variant(target)
        if variant is None:
            names = ", ".join(one.route.name for one in endpoint.variants)
            raise validation_error(
                f"Endpoint {endpoint.name} has no production variant {target}. It has: {names}."
            )
        return variant


def endpoint_name(raw_path: str) -> str:
    """The name in `/endpoints/{name}/…`, percent-decoded."""
    name = raw_path.split("/", 3)[2]
    return unquote(name) if "%" in name else name


def _target_model(
    endpoint: Endpoint, variant: Variant, headers: Mapping[str, str], request_id: bytes
) -> str | None:
    target_model = headers.get("x-amzn-sagemaker-target-model")
    if variant.route.multi_model:
        if target_model is None:
            raise missing_target_model(request_id.decode())
    elif target_model is not None:
        raise not_multi_model(endpoint.name)
    return target_model
