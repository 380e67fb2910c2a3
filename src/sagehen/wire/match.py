"""Which operation of which service a request asks for: all services share one port."""

import re
from urllib.parse import parse_qsl

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request
from sagehen.wire.rest import find_operation
from sagehen.wire.scope import likely_service
from sagehen.wire.services import (
    CBOR,
    PROTOCOLS,
    SERVED,
    OperationModel,
    ServiceModel,
    not_implemented,
    not_served,
    service,
)

__all__ = ["likely_model", "match", "not_implemented", "not_served", "unsigned_by_design"]

_RPC_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")
"""Of Smithy's RPC v2."""

_SIGN_AS_SAGEMAKER = (
    ("sagemaker-metrics", "/Batch(Get|Put)Metrics"),
    ("sagemaker-featurestore-runtime", "/FeatureGroup/.*|/Batch(Get|Write)Record"),
    ("sagemaker-edge", "/GetDeployments|/GetDeviceRegistration|/SendHeartbeat"),
    ("sagemaker-a2i-runtime", "/human-loops(/.*)?"),
    ("sagemaker-inference-router-runtime", "/inference-routers/.*"),
    ("sagemakerjobruntime", "/complete-rollout|/sample(-with-response-stream)?|/update-reward"),
    ("sagemakertrainingsessionruntime", "(/v1)?/training-sessions/.*"),
)
"""REST services that are not served, and how the paths of each are known: their signatures say
`sagemaker`, as those of SageMaker itself, which has one path and names operations in a header."""

_UNSIGNED_BY_DESIGN = re.compile(rb"(?:^|&)Action=(AssumeRoleWith(?:SAML|WebIdentity))(?:&|$)")
"""In a form for STS, whose caller has no keys yet. Searched for, not parsed: anyone may send it."""


def unsigned_by_design(request: Request) -> str | None:
    """The operation of STS that a request asks for and that is not signed on AWS either.

    For an error that says that it is not there: nothing may be done for such a request.
    """
    if "authorization" in request.headers or not _is_form(request):
        return None
    found = _UNSIGNED_BY_DESIGN.search(request.body)
    return found[1].decode() if found else None


def match(request: Request, signed_service: str) -> tuple[ServiceModel, OperationModel]:
    """The service and the operation of a request that is signed for `signed_service`.

    Raises:
        AwsError: the service is not served, or it has no such operation.
    """
    model = _spoken_to(_api_of(signed_service, request), request)
    name = _FINDERS[model.protocol](model, request)
    return model, model.operation_model(name)


def likely_model(request: Request) -> ServiceModel:
    """The service whose form of error the sender of a request can most likely read.

    Never fails: for requests that are refused before `match` could say whom they are for.
    """
    name = _api_of(likely_service(request), request)
    if name not in SERVED:
        name = "sts" if _is_form(request) else "sagemaker-runtime"
    return _spoken_to(name, request)


def _api_of(signed_service: str, request: Request) -> str:
    """botocore's name: two of its services sign as `sagemaker`, and one as `monitoring`."""
    if signed_service == "sagemaker" and request.raw_path.startswith("/endpoints/"):
        return "sagemaker-runtime"
    return "cloudwatch" if signed_service == "monitoring" else signed_service


def _spoken_to(name: str, request: Request) -> ServiceModel:
    """The service's model, in that of its protocols which the request is in."""
    offered = PROTOCOLS.get(name)
    if offered is None:
        return service(name)
    protocol = _protocol(request)
    return service(name, protocol if protocol in offered else offered[0])


def _protocol(request: Request) -> str:
    if request.headers.get("smithy-protocol") == "rpc-v2-cbor" or _RPC_PATH.fullmatch(
        request.raw_path
    ):
        return CBOR
    if "x-amz-target" in request.headers:
        return "json"
    return "query" if _is_form(request) or "Action=" in request.raw_query else "json"


def _is_form(request: Request) -> bool:
    return "x-www-form-urlencoded" in request.headers.get("content-type", "")


def _by_target(model: ServiceModel, request: Request) -> str:
    target = request.headers.get("x-amz-target", "")
    prefix, _, name = target.rpartition(".")
    if prefix == model.metadata["targetPrefix"] and name in model.operation_names:
        return name
    if not target:
        for name, paths in _SIGN_AS_SAGEMAKER:
            if model.service_name == "sagemaker" and re.fullmatch(paths, request.raw_path):
                raise not_served(name)
        raise _unknown("The request has no X-Amz-Target header to say which operation it is for.")
    raise _unknown(f"There is no operation {target[:128]!r} in {model.service_name}.")


def _by_action(model: ServiceModel, request: Request) -> str:
    given = dict(parse_qsl(request.body.decode("latin-1"), keep_blank_values=True))
    given.update(parse_qsl(request.raw_query, keep_blank_values=True))
    name = given.get("Action", "")
    if not name:
        raise AwsError("MissingAction", "The request is missing an Action parameter.", 400)
    if name not in model.operation_names:
        version = given.get("Version", model.api_version)
        raise AwsError(
            "InvalidAction",
            f"Could not find operation {name[:128]} for version {version[:64]}",
            400,
        )
    return name


def _by_operation_path(model: ServiceModel, request: Request) -> str:
    found = _RPC_PATH.fullmatch(request.raw_path)
    if found and found[1] == model.metadata["targetPrefix"] and found[2] in model.operation_names:
        return found[2]
    raise _unknown(f"There is no operation {request.raw_path[:256]} in {model.service_name}.")


def _by_binding(model: ServiceModel, request: Request) -> str:
    name = find_operation(model.service_name, request)
    if name is not None:
        return name
    what = f"{request.method} {request.raw_path[:256]}"
    if model.service_name == "s3":
        raise AwsError(
            "MethodNotAllowed",
            f"The specified method is not allowed against this resource: {what}",
            405,
        )
    raise _unknown(f"There is no operation {what} in {model.service_name}.")


def _unknown(why: str) -> AwsError:
    return AwsError("UnknownOperationException", why, 404)


_FINDERS = {
    CBOR: _by_operation_path,
    "json": _by_target,
    "query": _by_action,
    "rest-json": _by_binding,
    "rest-xml": _by_binding,
}
