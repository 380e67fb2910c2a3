"""AWS::SageMaker::Model, EndpointConfig and Endpoint."""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

import botocore.session
from botocore.exceptions import ClientError
from botocore.model import ServiceModel

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind, Status, tag_changes
from sagehen.apply.template.schema import Read, members_of

__all__ = ["EndpointConfigKind", "EndpointKind", "ModelKind", "SageMakerKind"]


@cache
def _service() -> ServiceModel:
    return botocore.session.get_session().get_service_model("sagemaker")


class SageMakerKind(ResourceKind):
    """CloudFormation's properties are the members of the Create operation."""

    noun: ClassVar[str]
    """e.g. `Model`, as in CreateModel"""
    of_arn: ClassVar[str]
    method: ClassVar[str]
    """e.g. `model`, as in boto3's create_model"""

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        shape = _service().operation_model(f"Create{self.noun}").input_shape
        return members_of(shape)

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        arn = destination.arn("sagemaker", f"{self.of_arn}/{name.lower()}")
        return {"Ref": arn, f"{self.noun}Name": name, f"{self.noun}Arn": arn}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        sagemaker = aws.client("sagemaker")
        try:
            description = getattr(sagemaker, f"describe_{self.method}")(
                **{f"{self.noun}Name": name}
            )
            arn = description[f"{self.noun}Arn"]
            pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
            description["Tags"] = [tag for page in pages for tag in page["Tags"]]
        except ClientError as error:
            if _is_absence(error):
                return None
            raise
        status, reason = self._status(description)
        return ActualState(name=name, properties=description, status=status, reason=reason)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        named = {**properties, f"{self.noun}Name": name}
        getattr(aws.client("sagemaker"), f"create_{self.method}")(**named)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        sagemaker, arn = aws.client("sagemaker"), actual.properties[f"{self.noun}Arn"]
        tags, removed_keys = tag_changes(actual, before, after)
        if removed_keys:
            sagemaker.delete_tags(ResourceArn=arn, TagKeys=removed_keys)
        if tags:
            sagemaker.add_tags(ResourceArn=arn, Tags=tags)

    def delete(self, aws: Aws, name: str) -> str | None:
        try:
            getattr(aws.client("sagemaker"), f"delete_{self.method}")(**{f"{self.noun}Name": name})
        except ClientError as error:
            if not _is_absence(error):
                raise
        return None

    def _status(self, description: dict[str, Any]) -> tuple[Status, str]:
        return "ready", ""


class ModelKind(SageMakerKind):
    type = "AWS::SageMaker::Model"
    name_property = "ModelName"
    named_by_content = True
    fixed = None
    noun, of_arn, method = "Model", "model", "model"


class EndpointConfigKind(SageMakerKind):
    type = "AWS::SageMaker::EndpointConfig"
    name_property = "EndpointConfigName"
    named_by_content = True
    fixed = None
    required = ("ProductionVariants",)
    noun, of_arn, method = "EndpointConfig", "endpoint-config", "endpoint_config"


_STATUSES: dict[str, Status] = {
    "InService": "ready",
    "Failed": "failed",
    "OutOfService": "failed",
    "UpdateRollbackFailed": "failed",
    "Deleting": "going",
}
_OF_UPDATE = (
    "DeploymentConfig",
    "ExcludeRetainedVariantProperties",
    "RetainAllVariantProperties",
    "RetainDeploymentConfig",
)


class EndpointKind(SageMakerKind):
    """UpdateEndpoint's properties take effect with the next change of EndpointConfigName."""

    type = "AWS::SageMaker::Endpoint"
    name_property = "EndpointName"
    fixed = frozenset({"EndpointName"})
    unseen = frozenset(_OF_UPDATE)
    required = ("EndpointConfigName",)
    noun, of_arn, method = "Endpoint", "endpoint", "endpoint"

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        create = _service().operation_model("CreateEndpoint").input_shape
        update = _service().operation_model("UpdateEndpoint").input_shape
        return {**members_of(update), **members_of(create)}

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        members = _service().operation_model("CreateEndpoint").input_shape.members
        supported = {key: value for key, value in properties.items() if key in members}
        super().create(aws, name, supported)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        super().update(aws, actual, before, after)
        # Ask the endpoint, not the record: a killed run may have updated it already.
        if actual.properties["EndpointConfigName"] != after["EndpointConfigName"]:
            aws.client("sagemaker").update_endpoint(
                EndpointName=actual.name,
                EndpointConfigName=after["EndpointConfigName"],
                **{key: after[key] for key in _OF_UPDATE if key in after},
            )

    def _status(self, description: dict[str, Any]) -> tuple[Status, str]:
        status = _STATUSES.get(description["EndpointStatus"], "busy")
        return status, description.get("FailureReason", "")


def _is_absence(error: ClientError) -> bool:
    message = error.response.get("Error", {}).get("Message", "")
    return code_of(error) == "ValidationException" and "Could not find" in message
