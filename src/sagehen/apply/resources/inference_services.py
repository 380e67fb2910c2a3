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
            shown = [
                one if path[at - 1 : at] == ["types"] else _camel(one)
                for at, one in enumerate(path)
            ]
            why = fault["msg"].removeprefix("Value error, ")
            raise Invalid(f"{'/'.join(['#', *shown])}: {why}") from None
        return _camel_keys(read.model_dump(mode="json", exclude_unset=True))

    def attributes(
        self, name: str, properties: dict[str, Any], place: Destination
    ) -> dict[str, str]:
        path = f"/{name}/inference"
        topic = properties.get("Topic") or f"inference-{name}"
        return {
            "Ref": name,
            "Stage": name,
            "Path": path,
            "TopicArn": place.arn("sns", topic),
            "Url": place.url + path,
        }

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        try:
            told = aws.own("GET", _AT, name)
        except NotFound:
            return None
        # No settings are in force: report no properties, so that the plan puts them again; the
        # answer then explains the fault.
        settings = told["settings"]
        found = {} if settings is None else _camel_keys({**settings, **told["given"]})
        if told["closing"]:
            # An unfinished deletion never resumes: delete and create again.
            reason = "its deletion was begun and not ended."
            return ActualState(name=name, properties=found, status="failed", reason=reason)
        return ActualState(name=name, properties=found)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        aws.own("PUT", _AT, name, body={**_snake(properties), "stage": name})

    def update(
        self, aws: Aws, live: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        self.create(aws, live.name, after)

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
    found = {names[name]: value for name, value in properties.items()}
    if isinstance(found.get("types"), dict):
        of_type = _names(TypeSettings)
        found["types"] = {
            name: {of_type.get(key, key): value for key, value in one.items()}
            if isinstance(one, dict)
            else one
            for name, one in found["types"].items()
        }
    return found


def _camel_keys(settings: dict[str, Any]) -> dict[str, Any]:
    found = {_camel(name): value for name, value in settings.items()}
    if isinstance(found.get("Types"), dict):
        found["Types"] = {
            name: {_camel(key): value for key, value in one.items()}
            for name, one in found["Types"].items()
        }
    return found


def _plain(value: Any, path: str) -> Any:
    return float(value) if isinstance(value, Written) else value
