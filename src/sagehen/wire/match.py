"""Finds the service and operation of a request: all services share one port."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parameters import form_parameters, is_form, parameters_of, spellings
from sagehen.wire.scope import Signing, error_family, likely_service, signing_of
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
from sagehen.wire.signatures import errors as refusals

__all__ = [
    "find_operation",
    "likely_model",
    "match",
    "not_implemented",
    "not_served",
    "path_labels",
    "unsigned_by_design",
]

_LABEL = re.compile(r"\{(\w+)(\+?)\}")


@dataclass(frozen=True)
class _Rule:
    operation: str
    method: str
    path: re.Pattern[str]
    literals: Mapping[str, str]
    """query parameters of the binding itself, as in `/{Bucket}?list-type=2`"""
    parameters: frozenset[str]
    headers: frozenset[str]
    weight: tuple[int, int]
    """how specific the binding is; of two that fit, the heavier one wins"""

    def fits(self, request: Request, query: Mapping[str, str]) -> bool:
        return (
            self.path.fullmatch(request.raw_path) is not None
            and all(query.get(name) == value for name, value in self.literals.items())
            and self.parameters <= query.keys()
            and self.headers <= request.headers.keys()
        )


def find_operation(service_name: str, request: Request) -> str | None:
    query = dict(parse_qsl(request.raw_query, keep_blank_values=True))
    for rule in _rules(service_name).get(request.method, ()):
        if rule.fits(request, query):
            return rule.operation
    return None


def path_labels(request_uri: str, raw_path: str) -> dict[str, str]:
    match = _path_pattern(request_uri.partition("?")[0]).fullmatch(raw_path)
    return {k: unquote(v) for k, v in match.groupdict().items()} if match else {}


@functools.cache
def _rules(service_name: str) -> Mapping[str, list[_Rule]]:
    model = service(service_name)
    by_method: dict[str, list[_Rule]] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if not operation.deprecated:  # S3 kept deprecated operations' bindings under newer names.
            rule = _rule(operation)
            by_method.setdefault(rule.method, []).append(rule)
    for rules in by_method.values():
        rules.sort(key=lambda rule: rule.weight, reverse=True)
    return by_method


def _rule(operation: OperationModel) -> _Rule:
    path, _, query = operation.http["requestUri"].partition("?")
    literals = dict(parse_qsl(query, keep_blank_values=True))
    parameters = frozenset(_required(operation, "querystring"))
    headers = frozenset(name.lower() for name in _required(operation, "header"))
    bare = len(_LABEL.sub("", path))
    return _Rule(
        operation=operation.name,
        method=operation.http["method"],
        path=_path_pattern(path),
        literals=literals,
        parameters=parameters,
        headers=headers,
        weight=(bare, len(literals) + len(parameters) + len(headers)),
    )


def _required(operation: OperationModel, location: str) -> Iterator[str]:
    shape = operation.input_shape
    for name in shape.required_members if shape else ():
        binding = shape.members[name].serialization
        if binding.get("location") == location:
            yield binding.get("name", name)


@functools.cache
def _path_pattern(path: str) -> re.Pattern[str]:
    text = ""
    end = 0
    for label in _LABEL.finditer(path):
        kind = ".+" if label[2] else "[^/]+"
        text += re.escape(path[end : label.start()]) + f"(?P<{label[1]}>{kind})"
        end = label.end()
    return re.compile(text + re.escape(path[end:]).removesuffix("/") + "/?", re.DOTALL)


_RPC_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")
"""Smithy's RPC v2"""

_RPC_PROTOCOLS = ("json", CBOR, "query")
"""protocols whose requests name the operation"""

_SIGN_AS_SAGEMAKER = (
    ("sagemaker-metrics", "/Batch(Get|Put)Metrics"),
    ("sagemaker-featurestore-runtime", "/FeatureGroup/.*|/Batch(Get|Write)Record"),
    ("sagemaker-gateway-runtime", "/global-inference-gateway/.*"),
    ("sagemaker-edge", "/GetDeployments|/GetDeviceRegistration|/SendHeartbeat"),
    ("sagemaker-a2i-runtime", "/human-loops(/.*)?"),
    ("sagemaker-inference-router-runtime", "/inference-routers/.*"),
    ("sagemakerjobruntime", "/complete-rollout|/sample(-with-response-stream)?|/update-reward"),
    ("sagemakertrainingsessionruntime", "(/v1)?/training-sessions/.*"),
)
"""REST services that sign as `sagemaker` but are not served, with their paths; SageMaker itself has
only one path"""

_SIGN_APART_FROM_S3 = {
    "s3express": "ListDirectoryBuckets",
    "s3-object-lambda": "WriteGetObjectResponse",
}
"""operations of S3 by the names that they are signed for instead of `s3`"""

_UNSIGNED_BY_DESIGN = ("AssumeRoleWithSAML", "AssumeRoleWithWebIdentity")
"""STS operations whose callers have no keys yet"""


def match(request: Request, signed_service: str) -> tuple[ServiceModel, OperationModel]:
    """Returns the service and operation of a request.

    All code that authorizes, parses or answers a request must use this result.

    Raises:
        AwsError: the service or operation is not served, or the request names more than one.
    """
    model = _model(_api_of(signed_service, request), request)
    if signed_service in _SIGN_APART_FROM_S3:
        raise not_implemented("s3", _SIGN_APART_FROM_S3[signed_service])
    if model.signing_name != signed_service:
        family = error_family(signed_service)
        raise refusals.wrong_service(family, signed_service, model.signing_name)
    if model.protocol in _RPC_PROTOCOLS:
        _check_named_once(model, request)
    name = _FINDERS[model.protocol](model, request)
    return model, model.operation_model(name)


def unsigned_by_design(request: Request) -> str | None:
    """Returns the request's STS operation if AWS leaves it unsigned.

    For error messages only: such a request must not be executed.
    """
    if signing_of(request) is not Signing.NOWHERE or likely_service(request) != "sts":
        return None
    try:
        _, operation = match(request, "sts")
    except AwsError:
        return None
    return operation.name if operation.name in _UNSIGNED_BY_DESIGN else None


def likely_model(request: Request) -> ServiceModel:
    """Guesses the service, for the errors of requests refused before `match`; never fails."""
    name = _api_of(likely_service(request), request)
    if name not in SERVED:
        name = "sts" if is_form(request) else "sagemaker-runtime"
    return _model(name, request)


def _api_of(signed_service: str, request: Request) -> str:
    """Some of botocore's services, and of S3's operations, sign by another name."""
    if signed_service == "sagemaker" and request.raw_path.startswith("/endpoints/"):
        return "sagemaker-runtime"
    if signed_service in _SIGN_APART_FROM_S3:
        return "s3"
    return "cloudwatch" if signed_service == "monitoring" else signed_service


def _model(name: str, request: Request) -> ServiceModel:
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
    names_action = any(name == "Action" for name, _ in parameters_of(request.raw_query))
    return "query" if is_form(request) or names_action else "json"


def _check_named_once(model: ServiceModel, request: Request) -> None:
    """Refuses ambiguous requests: another reader might choose another name."""
    parameters = parameters_of(request.raw_query)
    if model.protocol == "query" or is_form(request):
        parameters += parameters_of(request.body.decode("latin-1"))
    targets = [
        value
        for header, joined in request.headers.items()
        if header.replace("_", "-") == "x-amz-target"
        for value in joined.split(",")
    ]
    names = len(targets) + len(spellings(parameters, "Action"))
    names += _RPC_PATH.fullmatch(request.raw_path) is not None
    is_query = model.protocol == "query"
    versions = len(spellings(parameters, "Version")) if is_query else 0
    if names > 1 or versions > 1:
        subject = "operation" if names > 1 else "version"
        message = (
            f"The request names its {subject} more than once. Name it once: by one Action and one "
            "Version parameter, in the body or in the query, by one X-Amz-Target header, or by "
            "the path."
        )
        raise AwsError("InvalidQueryParameter", message, 400) if is_query else _unknown(message)


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
    parameters = dict(form_parameters(request))
    name = parameters.get("Action", "")
    if not name:
        raise AwsError("MissingAction", "The request is missing an Action parameter.", 400)
    if name not in model.operation_names:
        version = parameters.get("Version", model.api_version)
        raise AwsError(
            "InvalidAction",
            f"Could not find operation {name[:128]} for version {version[:64]}",
            400,
        )
    return name


def _by_operation_path(model: ServiceModel, request: Request) -> str:
    path_match = _RPC_PATH.fullmatch(request.raw_path)
    if (
        path_match
        and path_match[1] == model.metadata["targetPrefix"]
        and path_match[2] in model.operation_names
    ):
        return path_match[2]
    raise _unknown(f"There is no operation {request.raw_path[:256]} in {model.service_name}.")


def _by_binding(model: ServiceModel, request: Request) -> str:
    name = find_operation(model.service_name, request)
    if name is not None:
        return name
    target = f"{request.method} {request.raw_path[:256]}"
    if model.service_name == "s3":
        raise AwsError(
            "MethodNotAllowed",
            f"The specified method is not allowed against this resource: {target}",
            405,
        )
    raise _unknown(f"There is no operation {target} in {model.service_name}.")


def _unknown(message: str) -> AwsError:
    return AwsError("UnknownOperationException", message, 404)


_FINDERS = {
    CBOR: _by_operation_path,
    "json": _by_target,
    "query": _by_action,
    "rest-json": _by_binding,
    "rest-xml": _by_binding,
}
