"""The operations of endpoints: each writes the desired state, which the reconciler brings about."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import AlreadyExists
from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.image_versions import resolved_image
from sagehen.frame.named_records import read_page
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.config import make_default_bucket, try_topics
from sagehen.services.sagemaker.errors import (
    existing,
    in_progress,
    missing,
    not_built,
    refused,
)
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.deployments import (
    RunningCounts,
    check_capacity,
    copy_config,
    look_up_versions,
    retain,
    this_machine,
)
from sagehen.services.sagemaker.hosting.description import describe, summarize
from sagehen.services.sagemaker.hosting.events import endpoint_event
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)
from sagehen.services.sagemaker.hosting.scaled_variants import check_scaled_variants
from sagehen.services.sagemaker.hosting.serverless import change_serverless, check_conversion
from sagehen.services.sagemaker.hosting.variants import check_weights
from sagehen.services.sagemaker.tags import check_tags
from sagehen.wire.errors import AwsError

__all__ = [
    "change_variants",
    "check_deployment_config",
    "create_endpoint",
    "delete_endpoint",
    "describe_endpoint",
    "list_endpoints",
    "update_endpoint",
    "update_endpoint_weights_and_capacities",
]


def check_deployment_config(config: dict[str, Any] | None) -> None:
    """Raises AwsError for all but all-at-once blue/green, which every update does."""
    if config is None:
        return
    if "BlueGreenUpdatePolicy" in config and "RollingUpdatePolicy" in config:
        raise refused("Specify only one of BlueGreenUpdatePolicy and RollingUpdatePolicy.")
    routing = config.get("BlueGreenUpdatePolicy", {}).get("TrafficRoutingConfiguration", {})
    kind = routing.get("Type", "ALL_AT_ONCE")
    unbuilt = []
    if "RollingUpdatePolicy" in config:
        unbuilt.append("rolling updates (RollingUpdatePolicy)")
    if kind != "ALL_AT_ONCE":
        unbuilt.append(f"updates that shift traffic in steps (TrafficRoutingConfiguration {kind})")
    if config.get("AutoRollbackConfiguration", {}).get("Alarms"):
        unbuilt.append("rollback on alarms (AutoRollbackConfiguration)")
    if unbuilt:
        raise not_built(" and ".join(unbuilt))
    if "CanarySize" in routing or "LinearStepSize" in routing:
        raise refused("CanarySize and LinearStepSize do not go with Type ALL_AT_ONCE.")


_EXCLUDED = "ExcludeRetainedVariantProperties"
_BUSY = (EndpointStatus.CREATING, EndpointStatus.UPDATING, EndpointStatus.DELETING)


def create_endpoint(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Creates an endpoint; it is `Creating` until its instances are healthy."""
    given_tags = check_tags(params.get("Tags", []))
    check_deployment_config(params.get("DeploymentConfig"))
    name, now = params["EndpointName"], call.clock.now()
    arn = call.arns.sagemaker("endpoint", name)
    versions = look_up_versions(call, params["EndpointConfigName"])
    make_default_bucket(call, params["EndpointConfigName"])
    with call.database.write() as connection:
        if endpoints.get(connection, name) is not None:
            raise existing("endpoint", arn)
        target = copy_config(call, connection, params["EndpointConfigName"], name, versions)
        reason = try_topics(call, connection, target.asynchronous)
        record = EndpointRecord(
            name=name,
            arn=arn,
            created_at=now,
            modified_at=now,
            status=EndpointStatus.FAILED if reason else EndpointStatus.CREATING,
            failure_reason=reason,
            target=target,
            last_deployment_config=params.get("DeploymentConfig"),
        )
        _check_capacity(call, connection, record)
        try:
            endpoints.insert(connection, record)
        except AlreadyExists as error:
            raise existing("endpoint", arn) from error
        tags.put(connection, arn, given_tags)
        _put_status_event(connection, record, now)
    call.hint()
    return {"EndpointArn": arn}


def describe_endpoint(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    name = params["EndpointName"]
    with call.database.read() as connection:
        record = endpoints.get(connection, name)
        if record is None:
            raise _missing(call, name)
        of_endpoint = instances.of_endpoint(connection, record.name)
    settings = call.settings

    def resolve(image: str) -> str:
        return resolved_image(image, settings.image_versions, settings.images, settings.launcher)

    return describe(record, of_endpoint, resolve)


def list_endpoints(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    return read_page(call, params, endpoints.list_page, "Endpoints", summarize)


def update_endpoint(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deploy another config on new instances; the old ones serve until these are healthy."""
    check_deployment_config(params.get("DeploymentConfig"))
    excluded = [
        excluded_property["VariantPropertyType"] for excluded_property in params.get(_EXCLUDED, [])
    ]
    if excluded and not params.get("RetainAllVariantProperties"):
        raise refused(f"{_EXCLUDED} needs RetainAllVariantProperties to be true.")
    versions = look_up_versions(call, params["EndpointConfigName"])
    make_default_bucket(call, params["EndpointConfigName"])
    with call.database.write() as connection:
        record, current = _changeable(call, connection, params["EndpointName"])
        config_name = params["EndpointConfigName"]
        target = copy_config(call, connection, config_name, record.name, versions)
        if target.config_name == current.config_name:
            raise _same_config(call, target)
        _check_same_kind(record, current, target)
        check_scaled_variants(connection, record, current, target)
        check_conversion(current, target)
        if params.get("RetainAllVariantProperties"):
            target = retain(target, current, excluded)
            _check_weights(target)
        retained = record.last_deployment_config if params.get("RetainDeploymentConfig") else None
        after = _updating(call, record, target)
        after = msgspec.structs.replace(
            after, last_deployment_config=params.get("DeploymentConfig", retained)
        )
        _check_capacity(call, connection, after)
        after = _unless_topics_fail(call, connection, record, after)
        _update(connection, record, after)
    call.hint()
    return {"EndpointArn": record.arn}


def update_endpoint_weights_and_capacities(
    call: RequestContext, params: dict[str, Any]
) -> dict[str, Any]:
    """Change weights or instance counts of variants; existing instances stay."""
    changes = _by_variant(params["DesiredWeightsAndCapacities"])
    with call.database.write() as connection:
        record = change_variants(call, connection, params["EndpointName"], changes)
    call.hint()
    return {"EndpointArn": record.arn}


def change_variants(
    call: RequestContext,
    connection: Connection,
    endpoint_name: str,
    changes: dict[str, dict[str, Any]],
) -> EndpointRecord:
    """Begins to change weights or counts; returns the endpoint as it is stored.

    Args:
        changes: of DesiredWeightsAndCapacities, by variant.

    Raises:
        AwsError: the endpoint cannot be changed now, or not so; nothing is written.
    """
    record, current = _changeable(call, connection, endpoint_name)
    unknown = changes.keys() - {variant.name for variant in current.all_variants}
    if unknown:
        raise refused(
            f'The variant name(s) "{", ".join(sorted(unknown))}" is/are not present within '
            f'endpoint configuration "{current.config_name}".'
        )
    if current.asynchronous is None:
        _check_counts(current, changes.values())
    target = msgspec.structs.replace(
        current,
        variants=tuple(
            _changed(variant, changes.get(variant.name)) for variant in current.variants
        ),
        shadow=current.shadow and _changed(current.shadow, changes.get(current.shadow.name)),
    )
    _check_weights(target)
    after = _updating(call, record, target)
    _check_capacity(call, connection, after)
    after = _unless_topics_fail(call, connection, record, after)
    _update(connection, record, after)
    return after


def delete_endpoint(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes an endpoint; it is `Deleting` until its instances have stopped."""
    # In the group commit, because writers of requests lock the same rows.
    call.writes.run(lambda connection: _delete(call, connection, params["EndpointName"]))
    call.hint()
    return {}


def _delete(call: RequestContext, connection: Connection, name: str) -> None:
    record = endpoints.get_for_update(connection, name)
    if record is None:
        raise _missing(call, name)
    if record.status in _BUSY:
        raise in_progress(record.arn)
    deleting = msgspec.structs.replace(
        record, status=EndpointStatus.DELETING, modified_at=call.clock.now()
    )
    _update(connection, record, deleting)
    # In the same transaction, so that requests to a new endpoint of this name are not lost.
    async_requests.abandon(connection, record.name)
    # As SageMaker does: a new endpoint of this name begins without scalable targets.
    if call.autoscaling is not None:
        prefix = f"endpoint/{record.name}/variant/"
        call.autoscaling.deregister_all(connection, prefix, call.clock.now())


def _update(connection: Connection, before: EndpointRecord, after: EndpointRecord) -> None:
    endpoints.update(connection, after)
    if after.status is not before.status:
        _put_status_event(connection, after, after.modified_at)


def _put_status_event(connection: Connection, record: EndpointRecord, now: float) -> None:
    put_event(connection, endpoint_event(record, tags.get(connection, record.arn), now))


def _changeable(
    call: RequestContext, connection: Connection, name: str
) -> tuple[EndpointRecord, Deployment]:
    record = endpoints.get_for_update(connection, name)
    if record is None:
        raise _missing(call, name)
    if record.status in _BUSY:
        raise in_progress(record.arn)
    if record.status is EndpointStatus.FAILED or record.current is None:
        raise refused(
            f'Cannot update failed endpoint "{record.arn}". Delete it and create it again.'
        )
    return record, record.current


def _updating(call: RequestContext, record: EndpointRecord, target: Deployment) -> EndpointRecord:
    return msgspec.structs.replace(
        record,
        status=EndpointStatus.UPDATING,
        target=target,
        failure_reason=None,
        modified_at=call.clock.now(),
    )


def _unless_topics_fail(
    call: RequestContext, connection: Connection, before: EndpointRecord, after: EndpointRecord
) -> EndpointRecord:
    """Returns `after`, or if a topic is missing, `before` with the reason."""
    plan = after.target.asynchronous if after.target else None
    reason = try_topics(call, connection, plan)
    if reason is None:
        return after
    return msgspec.structs.replace(before, failure_reason=reason, modified_at=call.clock.now())


def _check_capacity(call: RequestContext, connection: Connection, after: EndpointRecord) -> None:
    counts = RunningCounts.of(call.database).read(connection)
    check_capacity(counts, after, call.settings, this_machine(call.settings))


def _check_weights(deployment: Deployment) -> None:
    shadows = () if deployment.shadow is None else (deployment.shadow.weight,)
    check_weights((variant.weight for variant in deployment.variants), shadows)


def _by_variant(changes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for change in changes:
        name = change["VariantName"]
        if name in by_name:
            raise refused(f'The variant name "{name}" was non-unique within the request.')
        by_name[name] = change
    return by_name


def _check_counts(current: Deployment, changes: Iterable[dict[str, Any]]) -> None:
    """Refuses counts of 0 where no request can wait for an instance to start."""
    without_model = {variant.name for variant in current.variants if variant.runs_no_model}
    from_zero = {variant.name for variant in current.all_variants if variant.scales_from_zero}
    for change in changes:
        count = change.get("DesiredInstanceCount")
        if change["VariantName"] in without_model:
            if count:
                raise refused(
                    f"Production variant {change['VariantName']} runs no model "
                    "(SAGEHEN_OFFLINE_RESULTS_ONLY), so its DesiredInstanceCount must be 0."
                )
        elif count == 0 and change["VariantName"] not in from_zero:
            raise refused(
                f"Production variant {change['VariantName']} needs a DesiredInstanceCount of at "
                "least 1: only asynchronous endpoints may have none, and models with the variable "
                "SAGEHEN_SCALE_FROM_ZERO."
            )


def _check_same_kind(record: EndpointRecord, current: Deployment, target: Deployment) -> None:
    """Refuses a change that would leave queued requests without a queue."""
    if (current.asynchronous is None) != (target.asynchronous is None):
        is_now = "not asynchronous" if current.asynchronous is None else "asynchronous"
        raise refused(
            f'Endpoint "{record.arn}" is {is_now}, and an update cannot change that. Create '
            "another endpoint."
        )


def _changed(variant: VariantPlan, change: dict[str, Any] | None) -> VariantPlan:
    if change is None:
        return variant
    variant = change_serverless(variant, change)
    return msgspec.structs.replace(
        variant,
        weight=change.get("DesiredWeight", variant.weight),
        instance_count=change.get("DesiredInstanceCount", variant.instance_count),
    )


def _missing(call: RequestContext, name: str) -> AwsError:
    return missing("endpoint", call.arns.sagemaker("endpoint", name))


def _same_config(call: RequestContext, target: Deployment) -> AwsError:
    arn = call.arns.sagemaker("endpoint-config", target.config_name)
    return refused(
        "Cannot update endpoint with the currently in use endpoint configuration "
        f'"{arn}". Create another one for the update.'
    )
