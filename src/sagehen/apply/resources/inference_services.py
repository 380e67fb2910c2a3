"""Defines Sagehen::InferenceService, with the keys of `[inference_service]` in CamelCase."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from sagehen.apply.client import Aws, Destination
from sagehen.apply.resources.resource import ActualState, ResourceKind
from sagehen.apply.template.reading import Written
from sagehen.apply.template.schema import Read
from sagehen.base.errors import Invalid, NotFound
from sagehen.base.settings.inference_service import InferenceServiceSettings, TypeSettings

__all__ = ["InferenceServiceKind"]

_AT = "inference-services"


class InferenceServiceKind(ResourceKind):
    """Deleting the service stops its jobs; the bucket and the topic remain."""

    type = "Sagehen::InferenceService"
    name_property = "Stage"
    fixed = frozenset({"Stage"})
    required = ("S3Bucket",)

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        return dict.fromkeys(_names(InferenceServiceSettings), _plain)

    def check(self, properties: dict[str, Any]) -> dict[str, Any]:
        snake = _snake(properties)
        try:
            read = InferenceServiceSettings.model_validate(snake)
        except ValidationError as error:
            fault = error.errors()[0]
            path = [str(part) for part in fault["loc"]]
            # The keys of `types` are the user's own names.
            steps = [
                step if path[at - 1 : at] == ["types"] else _camel(step)
                for at, step in enumerate(path)
            ]
            reason = fault["msg"].removeprefix("Value error, ")
            raise Invalid(f"{'/'.join(['#', *steps])}: {reason}") from None
        return _camel_keys(read.model_dump(mode="json", exclude_unset=True))

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        path = f"/{name}/inference"
        topic = properties.get("Topic") or f"inference-{name}"
        return {
            "Ref": name,
            "Stage": name,
            "Path": path,
            "TopicArn": destination.arn("sns", topic),
            "Url": destination.url + path,
        }

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        try:
            answer = aws.own("GET", _AT, name)
        except NotFound:
            return None
        # No settings are in force: report no properties, so that the plan puts them again; the
        # answer then explains the fault.
        settings = answer["settings"]
        actual = {} if settings is None else _camel_keys({**settings, **answer["given"]})
        if answer["closing"]:
            # An unfinished deletion never resumes: delete and create again.
            reason = "its deletion was begun and not ended."
            return ActualState(name=name, properties=actual, status="failed", reason=reason)
        return ActualState(name=name, properties=actual)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        aws.own("PUT", _AT, name, body={**_snake(properties), "stage": name})

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        self.create(aws, actual.name, after)

    def delete(self, aws: Aws, name: str) -> str | None:
        with suppress(NotFound):
            aws.own("DELETE", _AT, name)
        return None


def _names(settings: type[BaseModel]) -> dict[str, str]:
    return {_camel(name): name for name in settings.model_fields}


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _snake(properties: dict[str, Any]) -> dict[str, Any]:
    names = _names(InferenceServiceSettings)
    settings = {names[name]: value for name, value in properties.items()}
    if isinstance(settings.get("types"), dict):
        of_type = _names(TypeSettings)
        settings["types"] = {
            name: {of_type.get(key, key): value for key, value in type_settings.items()}
            if isinstance(type_settings, dict)
            else type_settings
            for name, type_settings in settings["types"].items()
        }
    return settings


def _camel_keys(settings: dict[str, Any]) -> dict[str, Any]:
    properties = {_camel(name): value for name, value in settings.items()}
    if isinstance(properties.get("Types"), dict):
        properties["Types"] = {
            name: {_camel(key): value for key, value in type_settings.items()}
            for name, type_settings in properties["Types"].items()
        }
    return properties


def _plain(value: Any, path: str) -> Any:
    return float(value) if isinstance(value, Written) else value
