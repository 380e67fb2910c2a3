"""Which operation of a REST service a method, a path and a query stand for."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from sagehen.wire.http import Request
from sagehen.wire.services import OperationModel, service

__all__ = ["find_operation", "path_labels"]

_LABEL = re.compile(r"\{(\w+)(\+?)\}")


@dataclass(frozen=True)
class _Rule:
    """One operation's binding; it fits where all that it names is there."""

    operation: str
    method: str
    path: re.Pattern[str]
    literals: Mapping[str, str]
    """Query parameters of the binding itself, as in `/{Bucket}?list-type=2`."""
    parameters: frozenset[str]
    headers: frozenset[str]
    weight: tuple[int, int]
    """How much it names: where two fit, the one that names more is meant."""

    def fits(self, request: Request, query: Mapping[str, str]) -> bool:
        return (
            self.path.fullmatch(request.raw_path) is not None
            and all(query.get(name) == value for name, value in self.literals.items())
            and self.parameters <= query.keys()
            and self.headers <= request.headers.keys()
        )


def find_operation(service_name: str, request: Request) -> str | None:
    """The operation's name; None if no binding of the service fits."""
    query = dict(parse_qsl(request.raw_query, keep_blank_values=True))
    for rule in _rules(service_name).get(request.method, ()):
        if rule.fits(request, query):
            return rule.operation
    return None


def path_labels(request_uri: str, raw_path: str) -> dict[str, str]:
    """The values of the labels in a binding such as `/{Bucket}/{Key+}`, decoded."""
    match = _path_pattern(request_uri.partition("?")[0]).fullmatch(raw_path)
    return {k: unquote(v) for k, v in match.groupdict().items()} if match else {}


@functools.cache
def _rules(service_name: str) -> Mapping[str, list[_Rule]]:
    model = service(service_name)
    by_method: dict[str, list[_Rule]] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if not operation.deprecated:  # S3 kept the bindings of some under newer names.
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
