"""Reads a template's sections and checks their form."""

import re
from collections.abc import Collection
from typing import Any, Literal, TypeVar

import msgspec

from sagehen.base.errors import Invalid

__all__ = ["Parameter", "ResourceSource", "Template", "TemplateOutput", "read_template"]

Kind = TypeVar("Kind", bound=msgspec.Struct)

VERSION = "2010-09-09"
_SECTIONS = {
    "AWSTemplateFormatVersion",
    "Conditions",
    "Description",
    "Mappings",
    "Metadata",
    "Outputs",
    "Parameters",
    "Resources",
}
_NOT_BUILT = ("Transform", "Rules", "Hooks")
_OF_RESOURCE = {
    "Condition",
    "DeletionPolicy",
    "DependsOn",
    "Metadata",
    "Properties",
    "Type",
    "UpdateReplacePolicy",
}
_DELETION = ("Delete", "Retain", "RetainExceptOnCreate")
_REPLACE = ("Delete", "Retain")
_LOGICAL_ID = re.compile(r"[A-Za-z0-9]{1,255}")
_MAX_RESOURCES = 500


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """A parameter as declared."""

    type: str
    default: Any = None
    allowed_values: list[Any] | None = None
    allowed_pattern: str | None = None
    min_length: Any = None
    max_length: Any = None
    min_value: Any = None
    max_value: Any = None
    no_echo: bool | Literal["true", "false"] = False
    description: str = ""
    constraint_description: str | None = None

    @property
    def is_secret(self) -> bool:
        return self.no_echo in (True, "true")


class ResourceSource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as declared."""

    logical_id: str
    type: str
    properties: dict[str, Any]
    depends_on: tuple[str, ...] = ()
    condition: str | None = None
    deletion_policy: str = "Delete"
    update_replace_policy: str = "Delete"


class TemplateOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """An output as declared; `export` has no effect."""

    value: Any
    description: str = ""
    condition: str | None = None
    export: Any = None


class Template(msgspec.Struct, frozen=True, kw_only=True):
    parameters: dict[str, Parameter]
    mappings: dict[str, dict[str, dict[str, Any]]]
    conditions: dict[str, Any]
    resources: dict[str, ResourceSource]
    outputs: dict[str, TemplateOutput]
    skipped: tuple[str, ...] = ()
    """what CDK adds for its own use, which `apply` does not need"""


def read_template(document: dict[str, Any], types: Collection[str]) -> Template:
    """Reads a template; raises Invalid for resource types outside `types` and other faults."""
    document, skipped = _without_cdk_parts(document)
    _check_sections(document)
    if str(document.get("AWSTemplateFormatVersion", VERSION)) != VERSION:
        raise Invalid("Template format error: unsupported value for AWSTemplateFormatVersion.")
    declared = _mapping(document, "Resources")
    if not declared:
        raise Invalid("Template format error: At least one Resources member must be defined.")
    if len(declared) > _MAX_RESOURCES:
        raise Invalid(
            f"Template format error: Number of resources, {len(declared)}, is greater than "
            f"maximum allowed, {_MAX_RESOURCES}"
        )
    resources = {name: _resource(name, value) for name, value in declared.items()}
    unknown = sorted({resource.type for resource in resources.values()} - set(types))
    if unknown:
        raise Invalid(
            f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]. Sagehen "
            f"has {', '.join(sorted(types))}."
        )
    template = Template(
        parameters=_all(document, "Parameters", Parameter),
        mappings=_mappings(document),
        conditions=_mapping(document, "Conditions"),
        resources=resources,
        outputs=_all(document, "Outputs", TemplateOutput),
        skipped=tuple(skipped),
    )
    _check_conditions(template)
    return template


def _without_cdk_parts(document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Drops what CDK writes into each template, and returns what that was: the check that its
    bootstrap stack is new enough, and its statistics. No resource depends on them."""
    kept: dict[str, Any] = {}
    skipped: list[str] = []
    for section, declared in document.items():
        names = declared if isinstance(declared, dict) else ()
        dropped = {name: part for name in names if (part := _cdk_part(section, name, declared))}
        if dropped:
            declared = {name: value for name, value in declared.items() if name not in dropped}
            skipped += dropped.values()
        if declared or not dropped:
            kept[section] = declared
    return kept, skipped


def _cdk_part(section: str, name: str, declared: dict[str, Any]) -> str:
    value = declared[name]
    type_ = value.get("Type") if isinstance(value, dict) else None
    if section == "Rules" and name == "CheckBootstrapVersion":
        return f"the rule {name}"
    if (section, name, type_) == (
        "Parameters",
        "BootstrapVersion",
        "AWS::SSM::Parameter::Value<String>",
    ):
        return f"the parameter {name}"
    if section == "Resources" and type_ == "AWS::CDK::Metadata":
        return f"{type_} {name}"
    return ""


def _check_sections(document: dict[str, Any]) -> None:
    for name in _NOT_BUILT:
        if name in document:
            raise Invalid(f"The section {name} of a template is not implemented by Sagehen.")
    more = [name for name in document if name not in _SECTIONS]
    if more:
        raise Invalid(f"Invalid template property or properties [{', '.join(more)}]")


def _mapping(document: dict[str, Any], section: str) -> dict[str, Any]:
    value = document.get(section)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid(f"Template format error: {section} must be a mapping of names.")
    for name in value:
        if not _LOGICAL_ID.fullmatch(name):
            kind = section.removesuffix("s")
            raise Invalid(f"Template format error: {kind} name {name} is non alphanumeric.")
    return value


def _all(document: dict[str, Any], section: str, kind: type[Kind]) -> dict[str, Kind]:
    return {
        name: _convert(f"/{section}/{name}", value, kind)
        for name, value in _mapping(document, section).items()
    }


def _convert(path: str, value: Any, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"Template format error: [{path}] {error}.") from error


def _mappings(document: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    mappings = _mapping(document, "Mappings")
    for name, mapping in mappings.items():
        if not isinstance(mapping, dict) or not all(
            isinstance(row, dict) for row in mapping.values()
        ):
            raise Invalid(
                f"Template format error: [/Mappings/{name}] Every Mappings member must be a map "
                "of maps."
            )
    return mappings


def _resource(name: str, value: Any) -> ResourceSource:
    path = f"/Resources/{name}"
    if not isinstance(value, dict):
        raise Invalid(f"Template format error: [{path}] resource definition is malformed")
    if not isinstance(value.get("Type"), str):
        raise Invalid(
            f"Template format error: [{path}] Every Resources object must contain a Type member."
        )
    for member in value:
        if member not in _OF_RESOURCE:
            raise Invalid(f"Invalid template resource property '{member}' (in {path})")
    properties = value.get("Properties") or {}
    if not isinstance(properties, dict):
        raise Invalid(f"Template format error: [{path}/Properties] Properties must be an object")
    return ResourceSource(
        logical_id=name,
        type=value["Type"],
        properties=properties,
        depends_on=_depends_on(path, value.get("DependsOn")),
        condition=_text(path, value, "Condition"),
        deletion_policy=_policy(path, value, "DeletionPolicy", _DELETION),
        update_replace_policy=_policy(path, value, "UpdateReplacePolicy", _REPLACE),
    )


def _depends_on(path: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value or []
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise Invalid(
            f"Template format error: [{path}] DependsOn must be a string or a list of them"
        )
    return tuple(names)


def _text(path: str, value: dict[str, Any], member: str) -> str | None:
    text = value.get(member)
    if text is not None and not isinstance(text, str):
        raise Invalid(f"Template format error: [{path}] {member} must be a string")
    return text


def _policy(path: str, value: dict[str, Any], member: str, allowed: tuple[str, ...]) -> str:
    policy = _text(path, value, member) or "Delete"
    if policy not in allowed:
        raise Invalid(
            f"Template format error: Unrecognized {member} {policy} for resource "
            f"{path.rpartition('/')[2]}. It is one of {', '.join(allowed)}."
        )
    return policy


def _check_conditions(template: Template) -> None:
    owners: list[ResourceSource | TemplateOutput] = [
        *template.resources.values(),
        *template.outputs.values(),
    ]
    for owner in owners:
        if owner.condition is not None and owner.condition not in template.conditions:
            raise Invalid(
                f"Template validation error: the condition {owner.condition} is not defined."
            )
