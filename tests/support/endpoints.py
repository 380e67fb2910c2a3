"""Endpoints in a test state: what is stored, and reconcile's work done by hand."""

import msgspec

from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import EndpointStatus

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/"
CONFIG_ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/"
ALL_AT_ONCE = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    }
}


def stored(server, name="e"):
    with server.database.read() as connection:
        return endpoints.get(connection, name)


def change(server, name="e", **fields):
    """Change the stored endpoint as reconcile would."""
    with server.database.write() as connection:
        record = endpoints.get(connection, name)
        endpoints.update(connection, msgspec.structs.replace(record, **fields))


def in_service(server, name="e", config="c"):
    """An endpoint that serves."""
    server.CreateEndpoint(EndpointName=name, EndpointConfigName=config)
    settle(server, name)


def settle(server, name="e"):
    target = stored(server, name).target
    change(server, name, status=EndpointStatus.IN_SERVICE, current=target, target=None)


def weigh(server, *desired):
    return server.UpdateEndpointWeightsAndCapacities(
        EndpointName="e", DesiredWeightsAndCapacities=list(desired)
    )
