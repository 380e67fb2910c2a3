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
from sagehen.apply.template.functions import FunctionScope, evaluate, evaluate_conditions
from sagehen.apply.template.parameters import Secret, Value, parameter_values, text_of
from sagehen.apply.template.references import check_references, in_order, needs
from sagehen.apply.template.template import ResourceSource, Template
from sagehen.base.errors import Invalid

__all__ = ["UNKNOWN", "Desired", "Resolver", "content_digits", "generated_name", "place_digits"]

_DIGITS = 8


def generated_name(stack: str, logical_id: str, digits: str, longest: int) -> str:
    """Returns `<stack>-<logical id>-<digits>`, cut to fit."""
    room = longest - len(digits) - 2
    if len(stack) + len(logical_id) > room:
        stack = stack[: max(room // 2, room - len(logical_id))].rstrip("-")
        logical_id = logical_id[: room - len(stack)]
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
        given: Mapping[str, str],
        stack: str,
        place: Destination,
        content: StackContent,
    ) -> None:
        """Raises Invalid for wrong parameters, conditions or references."""
        self._template = template
        self._stack = stack
        self._place = place
        self._kept = content.resources
        self._attributes: dict[str, dict[str, str]] = {}
        check_references(template)
        parameters = parameter_values(template.parameters, given)
        self._secrets = _secrets(template, parameters)
        pseudo = _pseudo(stack, place)
        scope = FunctionScope({**parameters, **pseudo}, template.mappings, {}, _no_resource)
        self._conditions = evaluate_conditions(template.conditions, scope)
        self._scope = FunctionScope(
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
        given = evaluate(source.properties, self._scope, path)
        properties = kind.read(logical_id, _shorn(given))
        name = self._name(kind, source, properties)
        attributes = kind.attributes(name or UNKNOWN, properties, self._place)
        kept = self._kept.get(logical_id)
        if kept is not None and kept.type == source.type and kept.name == name:
            attributes |= kept.attributes
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
                    (*_places_of(self._secrets, given), *_places_of(self._secrets, properties))
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

    def kept_outputs(self, kept: Mapping[str, str]) -> dict[str, str]:
        return masked_outputs(self.outputs(), self.hidden_outputs(), kept)

    def _outputs(self) -> Iterator[tuple[str, str]]:
        for name, one in self._template.outputs.items():
            if one.condition is None or self._conditions[one.condition]:
                value = text_of(evaluate(one.value, self._scope, f"/Outputs/{name}/Value"))
                if value is None:
                    raise Invalid(
                        f"Template format error: Every Outputs member must be a string ({name})."
                    )
                yield name, value

    def descriptions(self) -> dict[str, str]:
        return {name: one.description for name, one in self._template.outputs.items()}

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
        found = self._attributes.get(logical_id)
        if found is None:
            raise Invalid(
                f"Template format error: Unresolved resource dependencies [{logical_id}] in the "
                "Outputs block of the template"
            )
        if attribute is None:
            return found["Ref"]
        if attribute == "Ref" or attribute not in found:
            known = ", ".join(sorted(found.keys() - {"Ref"}))
            raise Invalid(
                f"Template error: resource {logical_id} does not support attribute type "
                f"{attribute} in Fn::GetAtt. It has {known}."
            )
        return found[attribute]


def _name_if_same(
    kind: ResourceKind, kept: StackResource | None, properties: dict[str, Any]
) -> str:
    if kept is None or kept.type != kind.type:
        return ""
    same = is_equal(kind.identity(kept.properties), kind.identity(properties))
    return kept.name if same else ""


def _pseudo(stack: str, place: Destination) -> dict[str, Value]:
    return {
        "AWS::AccountId": place.account_id,
        "AWS::Partition": place.partition,
        "AWS::Region": place.region,
        "AWS::StackId": place.arn("cloudformation", f"stack/{stack}/sagehen"),
        "AWS::StackName": stack,
        "AWS::URLSuffix": place.url_suffix,
    }


def _secrets(template: Template, parameters: Mapping[str, Value]) -> list[str]:
    """Lists the values of NoEcho parameters, longest first."""
    found: list[str] = []
    for name, one in template.parameters.items():
        if one.is_secret:
            value = parameters[name]
            found += [value] if isinstance(value, str) else value
    return sorted((one for one in found if one), key=len, reverse=True)


def _places_of(secrets: Sequence[str], properties: dict[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        yield from _leaves(secrets, value, name)


def _leaves(secrets: Sequence[str], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(secrets, one, f"{path}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _leaves(secrets, one, f"{path}[{number}]")
    elif _is_hidden(secrets, value):
        yield path


def _is_hidden(secrets: Sequence[str], value: Any) -> bool:
    """Tells whether a value was made from a secret or contains one, as an attribute may."""
    return isinstance(value, Secret) or any(secret in str(value) for secret in secrets)


def _shorn(value: Any) -> Any:
    """Turns Secret into str for records and requests."""
    if isinstance(value, dict):
        return {name: _shorn(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_shorn(one) for one in value]
    return str(value) if isinstance(value, Secret) else value


def _no_resource(logical_id: str, _: str | None) -> str:
    raise Invalid(
        "Template validation error: Unresolved dependencies "
        f"[{logical_id}]. Cannot reference resources in the Conditions block of the template"
    )
