"""Each member of an operation's input is read or refused by the operation's code, or listed as
having no effect."""

import ast
import functools
import inspect
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sagehen
from sagehen.wire.services import Shape, service

SOURCE = Path(sagehen.__file__).parent
REFERENCE = runpy.run_path(str(SOURCE.parents[1] / "scripts" / "reference.py"))
WITHOUT_EFFECT, REFUSED = REFERENCE["WITHOUT_EFFECT"], REFERENCE["REFUSED"]
input_members, is_listed = REFERENCE["input_members"], REFERENCE["is_listed"]
OPERATIONS = [
    pytest.param(service_name, operation, function, id=f"{service_name}-{operation}")
    for service_name, operations in REFERENCE["served_operations"]().items()
    for operation, function in operations.items()
]

PACKAGES = {
    "application-autoscaling": ("services/autoscaling", "services/monitoring/alarms"),
    "cloudwatch": ("services/monitoring/cloudwatch", "services/monitoring/alarms"),
    "events": ("services/messaging/events",),
    "iam": ("services/identity",),
    "logs": ("services/monitoring/logs",),
    "s3": ("services/s3",),
    "sagemaker-runtime": ("gateway", "services/sagemaker/async_inference"),
    "sns": ("services/messaging/sns",),
    "sqs": ("services/messaging/sqs",),
    "sts": ("services/identity",),
}
"""code that reads the requests of a service; of SageMaker an operation's module says it"""
ALSO_READ_BY = {"hosting": ("async_inference",), "transform": ("hosting",)}


@pytest.mark.parametrize(("service_name", "operation", "function"), OPERATIONS)
def test_each_member_has_an_effect_or_is_refused_or_listed(service_name, operation, function):
    shape = service(service_name).operation_model(operation).input_shape
    names = names_in(packages_of(service_name, function))
    listed = (*WITHOUT_EFFECT[service_name], *REFUSED.get(service_name, ()))
    missing = [
        member
        for member, _, inner in input_members(shape, listed)
        if not is_listed(listed, member) and not is_named(member, inner, names)
    ]
    assert not missing, "read these, refuse them, or list them in app/api/members.py"


@pytest.mark.parametrize("service_name", WITHOUT_EFFECT)
def test_listed_members_exist(service_name):
    listed = {*WITHOUT_EFFECT[service_name], *REFUSED.get(service_name, ())}
    for operation in REFERENCE["served_operations"]()[service_name]:
        shape = service(service_name).operation_model(operation).input_shape
        for member, _, _ in input_members(shape):
            listed -= {member, f"*.{member.partition('.')[2]}"}
    assert not listed


def packages_of(service_name: str, function: Callable[..., Any] | None) -> tuple[str, ...]:
    if service_name != "sagemaker":
        return PACKAGES[service_name]
    assert function is not None
    package = inspect.unwrap(getattr(function, "func", function)).__module__.split(".")[3]
    return tuple(f"services/sagemaker/{name}" for name in (package, *ALSO_READ_BY.get(package, ())))


@functools.cache
def names_in(packages: tuple[str, ...]) -> frozenset[str]:
    """Returns the strings in the code that reads requests of these packages.

    Modules that only describe do not count: a member that they name is shown, and no more.
    """
    shared = [path for package in packages for path in (SOURCE / package).parent.glob("*.py")]
    files = [path for package in (*packages, "frame") for path in (SOURCE / package).rglob("*.py")]
    return frozenset(
        name
        for path in {*shared, *files}
        if path.name != "description.py"
        for name in names_in_file(path)
    )


@functools.cache
def names_in_file(path: Path) -> frozenset[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    # Keys of dictionaries do not count: answers are made of them.
    keys = {key for node in nodes if isinstance(node, ast.Dict) for key in node.keys}
    names = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in keys:
            names.add(node.value)
        elif isinstance(node, ast.ClassDef) and any(
            isinstance(keyword.value, ast.Constant) and keyword.value.value == "pascal"
            for keyword in node.keywords
        ):
            fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
            names |= {
                "".join(map(str.capitalize, field.id.split("_")))
                for field in fields
                if isinstance(field, ast.Name)
            }
    return frozenset(names)


def is_named(member: str, shape: Shape, names: frozenset[str]) -> bool:
    """Whether code names a member, also by its header or the beginning of that."""
    name = member.partition(".")[2]
    wire_name = shape.serialization.get("name", name)
    header = wire_name.lower()
    beginnings = {header[: dash.end()] for dash in re.finditer("-", header)} - {"x-", "x-amz-"}
    return not names.isdisjoint((name, wire_name, header, *beginnings))
