"""What a DeploymentConfig may ask for: how an update changes over to the new instances."""

from typing import Any

from sagehen.api.refusals import not_built, refused

__all__ = ["check_deployment_config"]


def check_deployment_config(given: dict[str, Any] | None) -> None:
    """Let all-at-once blue/green pass: it is what every update does.

    Raises:
        AwsError: it contradicts itself, or asks for another kind of update.
    """
    if given is None:
        return
    if "BlueGreenUpdatePolicy" in given and "RollingUpdatePolicy" in given:
        raise refused("Specify only one of BlueGreenUpdatePolicy and RollingUpdatePolicy.")
    if "RollingUpdatePolicy" in given:
        raise not_built("rolling updates (RollingUpdatePolicy)")
    if given.get("AutoRollbackConfiguration", {}).get("Alarms"):
        raise not_built("rollback on alarms (AutoRollbackConfiguration)")
    routing = given.get("BlueGreenUpdatePolicy", {}).get("TrafficRoutingConfiguration", {})
    kind = routing.get("Type", "ALL_AT_ONCE")
    if kind != "ALL_AT_ONCE":
        raise not_built(f"updates that shift traffic in steps (TrafficRoutingConfiguration {kind})")
    if "CanarySize" in routing or "LinearStepSize" in routing:
        raise refused("CanarySize and LinearStepSize do not go with Type ALL_AT_ONCE.")
