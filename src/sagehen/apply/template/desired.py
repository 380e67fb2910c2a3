"""Resolves the names, properties and attributes of a template's resources.

Attributes are predicted before creation. Only a subscription's ARN and a queue's URL come from the
server, through `settle`. Generated names consist of the stack, the logical id and eight digits.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sagehen.apply.client import Destination
from sagehen.apply.hidden import is_equal, masked_outputs
from sagehen.apply.resources import KINDS, ResourceKind
from sagehen.apply.stack import StackContent, StackResource
from sagehen.apply.template.functions import TemplateScope, evaluate, evaluate_conditions
from sagehen.apply.template.parameters import Secret, Value, parameter_values, text_of
from sagehen.apply.template.references import check_references, in_order, needs
from sagehen.apply.template.template import ResourceSource, Template
from sagehen.base.errors import Invalid

__all__ = ["UNKNOWN", "Desired", "Resolver", "content_digits", "generated_name", "place_digits"]

_DIGITS = 8


def generated_name(stack: str, logical_id: str, digits: str, longest: int) -> str:
    """Returns `<stack>-<logical id>-<digits>`, cut to fit."""
    available = longest - len(digits) - 2
    if len(stack) + len(logical_id) > available:
        stack = stack[: max(available // 2, available - len(logical_id))].rstrip("-")
        logical_id = logical_id[: available - len(stack)]
    return f"{stack}-{logical_id}-{digits}"


def content_digits(properties: dict[str, Any]) -> str:
    """Hashes properties, so that a replacement gets another name."""
    return _digits(json.dumps(properties, sort_keys=True, separators=(",", ":")))


def place_digits(account_id: str, stack: str, logical_id: str) -> str:
    """Hashes the resource's identity, for a name that stays."""
    return _digits(f"{account_id}/{stack}/{logical_id}")


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


UNKNOWN = "(known once it is made)"


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as the template describes it."""

    logical_id: str
    type: str
    name: str
    """empty if the server chooses it"""
    is_named: bool
    """by the template"""
    properties: dict[str, Any]
    attributes: dict[str, str]
    needs: tuple[str, ...]
    deletion_policy: str
    update_replace_policy: str
    hidden: tuple[str, ...] = ()
    """paths of NoEcho values"""

    @property
    def kind(self) -> ResourceKind:
        return KINDS[self.type]


class Resolver:
    """Resolves one template for one stack."""

    def __init__(
        self,
        template: Template,
        assignments: Mapping[str, str],
        stack: str,
        destination: Destination,
        content: StackContent,
    ) -> None:
        """Raises Invalid for wrong parameters, conditions or references."""
        self._template = template
        self._stack = stack
        self._place = destination
        self._kept = content.resources
        self._attributes: dict[str, dict[str, str]] = {}
        check_references(template)
        parameters = parameter_values(template.parameters, assignments)
        self._secrets = _secrets(template, parameters)
        pseudo = _pseudo(stack, destination)
        scope = TemplateScope({**parameters, **pseudo}, template.mappings, {}, _no_resource)
        self._conditions = evaluate_conditions(template.conditions, scope)
        self._scope = TemplateScope(
            scope.parameters, template.mappings, self._conditions, self._attribute
        )
        self._needs = needs(template, self._conditions)
        self.order = in_order(self._needs)

    def resolve(self, logical_id: str) -> Desired:
        """Resolves one resource, after its dependencies.

        Raises Invalid for wrong properties or functions.
        """
        source = self._template.resources[logical_id]
        path = f"/Resources/{logical_id}/Properties"
        kind = KINDS[source.type]
        evaluated = evaluate(source.properties, self._scope, path)
        properties = kind.read(logical_id, _shorn(evaluated))
        name = self._name(kind, source, properties)
        attributes = kind.attributes(name or UNKNOWN, properties, self._place)
        record = None if kind.is_recorded_only else self._kept.get(logical_id)
        if record is not None and record.type == source.type and record.name == name:
            attributes |= record.attributes
        self._attributes[logical_id] = attributes
        return Desired(
            logical_id=logical_id,
            type=source.type,
            name=name,
            is_named=kind.name_property in properties,
            properties=properties,
            attributes=attributes,
            needs=tuple(self._needs[logical_id]),
            deletion_policy=source.deletion_policy,
            update_replace_policy=source.update_replace_policy,
            hidden=tuple(
                dict.fromkeys(
                    # Reading may move a value; only `given` keeps the type that marks values made
                    # of secrets.
                    (
                        *_places_of(self._secrets, evaluated),
                        *_places_of(self._secrets, properties),
                    )
                )
            ),
        )

    def resolve_all(self) -> list[Desired]:
        """Resolves all resources in dependency order."""
        return [self.resolve(name) for name in self.order]

    def settle(self, logical_id: str, attributes: dict[str, str]) -> None:
        self._attributes[logical_id] = attributes

    def outputs(self) -> dict[str, str]:
        """Returns the outputs; raises Invalid if one is not text."""
        return {name: str(value) for name, value in self._outputs()}

    def hidden_outputs(self) -> set[str]:
        return {name for name, value in self._outputs() if _is_hidden(self._secrets, value)}

    def kept_outputs(self, recorded: Mapping[str, str]) -> dict[str, str]:
        return masked_outputs(self.outputs(), self.hidden_outputs(), recorded)

    def _outputs(self) -> Iterator[tuple[str, str]]:
        for name, output in self._template.outputs.items():
            if output.condition is None or self._conditions[output.condition]:
                value = text_of(evaluate(output.value, self._scope, f"/Outputs/{name}/Value"))
                if value is None:
                    raise Invalid(
                        f"Template format error: Every Outputs member must be a string ({name})."
                    )
                yield name, value

    def descriptions(self) -> dict[str, str]:
        return {name: output.description for name, output in self._template.outputs.items()}

    def _name(self, kind: ResourceKind, source: ResourceSource, properties: dict[str, Any]) -> str:
        if kind.name_property is None:
            return _name_if_same(kind, self._kept.get(source.logical_id), properties)
        if kind.name_property in properties:
            return str(properties[kind.name_property])
        if kind.named_by_content:
            digits = content_digits(kind.identity(properties))
        else:
            digits = place_digits(self._place.account_id, self._stack, source.logical_id)
        name = generated_name(self._stack, source.logical_id, digits, kind.longest_name)
        return name.lower() if kind.lower_names else name

    def _attribute(self, logical_id: str, attribute: str | None) -> str:
        attributes = self._attributes.get(logical_id)
        if attributes is None:
            raise Invalid(
                f"Template format error: Unresolved resource dependencies [{logical_id}] in the "
                "Outputs block of the template"
            )
        if attribute is None:
            return attributes["Ref"]
        if attribute == "Ref" or attribute not in attributes:
            known = ", ".join(sorted(attributes.keys() - {"Ref"}))
            raise Invalid(
                f"Template error: resource {logical_id} does not support attribute type "
                f"{attribute} in Fn::GetAtt. It has {known}."
            )
        return attributes[attribute]


def _name_if_same(
    kind: ResourceKind, record: StackResource | None, properties: dict[str, Any]
) -> str:
    if record is None or record.type != kind.type:
        return ""
    is_same = is_equal(kind.identity(record.properties), kind.identity(properties))
    return record.name if is_same else ""


def _pseudo(stack: str, destination: Destination) -> dict[str, Value]:
    return {
        "AWS::AccountId": destination.account_id,
        "AWS::Partition": destination.partition,
        "AWS::Region": destination.region,
        "AWS::StackId": destination.arn("cloudformation", f"stack/{stack}/sagehen"),
        "AWS::StackName": stack,
        "AWS::URLSuffix": destination.url_suffix,
    }


def _secrets(template: Template, parameters: Mapping[str, Value]) -> list[str]:
    """Lists the values of NoEcho parameters, longest first."""
    secrets: list[str] = []
    for name, parameter in template.parameters.items():
        if parameter.is_secret:
            value = parameters[name]
            secrets += [value] if isinstance(value, str) else value
    return sorted((parameter for parameter in secrets if parameter), key=len, reverse=True)


def _places_of(secrets: Sequence[str], properties: dict[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        yield from _leaves(secrets, value, name)


def _leaves(secrets: Sequence[str], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(secrets, item, f"{path}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(secrets, item, f"{path}[{number}]")
    elif _is_hidden(secrets, value):
        yield path


def _is_hidden(secrets: Sequence[str], value: Any) -> bool:
    """Tells whether a value was made from a secret or contains one, as an attribute may."""
    return isinstance(value, Secret) or any(secret in str(value) for secret in secrets)


def _shorn(value: Any) -> Any:
    """Turns Secret into str for records and requests."""
    if isinstance(value, dict):
        return {name: _shorn(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorn(item) for item in value]
    return str(value) if isinstance(value, Secret) else value


def _no_resource(logical_id: str, _: str | None) -> str:
    raise Invalid(
        "Template validation error: Unresolved dependencies "
        f"[{logical_id}]. Cannot reference resources in the Conditions block of the template"
    )
