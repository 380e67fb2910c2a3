"""Which operation of which service a request asks for: all services share one port."""

from urllib.parse import parse_qsl

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request
from sagehen.wire.rest import find_operation
from sagehen.wire.scope import likely_service
from sagehen.wire.services import (
    SERVED,
    OperationModel,
    ServiceModel,
    not_implemented,
    not_served,
    service,
)

__all__ = ["likely_model", "match", "not_implemented", "not_served"]


def match(request: Request, signed_service: str) -> tuple[ServiceModel, OperationModel]:
    """The service and the operation of a request that is signed for `signed_service`.

    Raises:
        AwsError: the service is not served, or it has no such operation.
    """
    model = service(_api_of(signed_service, request))
    name = _FINDERS[model.protocol](model, request)
    return model, model.operation_model(name)


def likely_model(request: Request) -> ServiceModel:
    """The service whose form of error the sender of a request can most likely read.

    Never fails: for requests that are refused before `match` could say whom they are for.
    """
    name = _api_of(likely_service(request), request)
    if name not in SERVED:
        form = "x-www-form-urlencoded" in request.headers.get("content-type", "")
        name = "sts" if form else "sagemaker-runtime"
    return service(name)


def _api_of(signed_service: str, request: Request) -> str:
    """botocore's name: two of its services sign as `sagemaker`."""
    if signed_service == "sagemaker" and request.raw_path.startswith("/endpoints/"):
        return "sagemaker-runtime"
    return signed_service


def _by_target(model: ServiceModel, request: Request) -> str:
    target = request.headers.get("x-amz-target", "")
    prefix, _, name = target.rpartition(".")
    if prefix == model.metadata["targetPrefix"] and name in model.operation_names:
        return name
    if not target:
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
    "json": _by_target,
    "query": _by_action,
    "rest-json": _by_binding,
    "rest-xml": _by_binding,
}
