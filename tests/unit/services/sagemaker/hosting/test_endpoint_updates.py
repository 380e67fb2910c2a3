"""UpdateEndpoint and UpdateEndpointWeightsAndCapacities."""

from datetime import UTC, datetime

import msgspec
import pytest

from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.endpoints import (
    ALL_AT_ONCE,
    ARN,
    CONFIG_ARN,
    change,
    in_service,
    settle,
    stored,
    weigh,
)


@pytest.fixture(autouse=True)
def config(server):
    server.model()
    server.config("c")


def test_update_to_another_config(server):
    in_service(server)
    before = stored(server).current
    server.config("next", server.variant("AllTraffic", InstanceType="ml.c5.large"))
    server.clock.seconds += 60
    answer = server.UpdateEndpoint(
        EndpointName="E", EndpointConfigName="next", DeploymentConfig=ALL_AT_ONCE
    )
    assert answer == {"EndpointArn": ARN + "e"}
    record = stored(server)
    assert (record.status, record.current) == ("Updating", before)
    assert record.target.deployment_id != before.deployment_id
    described = server.DescribeEndpoint(EndpointName="e")
    now = datetime.fromtimestamp(server.clock.now(), UTC)
    assert described["LastModifiedTime"] == now
    assert described["EndpointConfigName"] == "c"
    assert described["LastDeploymentConfig"] == ALL_AT_ONCE
    assert "VariantStatus" not in described["ProductionVariants"][0]
    pending = described["PendingDeploymentSummary"]
    assert (pending["EndpointConfigName"], pending["StartTime"]) == ("next", now)
    (variant,) = pending["ProductionVariants"]
    assert variant["InstanceType"] == "ml.c5.large"
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 1)
    assert variant["VariantStatus"] == [{"Status": "Creating", "StartTime": now}]


def test_update_to_the_same_config_is_refused(server, refusal):
    in_service(server)
    said = refusal(lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="C"))
    assert said.startswith(
        f'Cannot update endpoint with the currently in use endpoint configuration "{CONFIG_ARN}c".'
    )


@pytest.mark.parametrize(
    ("excluded", "count", "weight"),
    [
        ([], 3, 0.5),
        (["DesiredInstanceCount"], 1, 0.5),
        (["DesiredWeight"], 3, 1.0),
        (["DesiredWeight", "DesiredInstanceCount", "DataCaptureConfig"], 1, 1.0),
    ],
)
def test_update_retains_variant_properties(server, excluded, count, weight):
    in_service(server)
    desired = {"VariantName": "AllTraffic", "DesiredWeight": 0.5, "DesiredInstanceCount": 3}
    server.UpdateEndpointWeightsAndCapacities(
        EndpointName="e", DesiredWeightsAndCapacities=[desired]
    )
    settle(server)
    server.config("next", server.variant(), server.variant("Another", InitialVariantWeight=7))
    server.UpdateEndpoint(
        EndpointName="e",
        EndpointConfigName="next",
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": kind} for kind in excluded],
    )
    old, new = stored(server).target.variants
    assert (old.instance_count, old.weight) == (count, weight)
    assert (new.instance_count, new.weight) == (1, 7)


def test_update_without_retaining_starts_from_the_config(server):
    in_service(server)
    change(
        server,
        current=msgspec.structs.replace(
            stored(server).current,
            variants=(
                msgspec.structs.replace(stored(server).current.variants[0], instance_count=4),
            ),
        ),
    )
    server.config("next")
    server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    assert stored(server).target.variants[0].instance_count == 1


def test_excluding_without_retaining_is_refused(server, refusal):
    in_service(server)
    excluded = [{"VariantPropertyType": "DesiredWeight"}]
    assert "RetainAllVariantProperties" in refusal(
        lambda: server.UpdateEndpoint(
            EndpointName="e", EndpointConfigName="c", ExcludeRetainedVariantProperties=excluded
        )
    )


def test_last_deployment_config_is_retained_on_request(server):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c", DeploymentConfig=ALL_AT_ONCE)
    settle(server)
    for config, retain in (("x", True), ("y", False)):
        server.config(config)
        server.UpdateEndpoint(
            EndpointName="e", EndpointConfigName=config, RetainDeploymentConfig=retain
        )
        described = server.DescribeEndpoint(EndpointName="e")
        assert ("LastDeploymentConfig" in described) is retain
        settle(server)


def shifting(kind, **more):
    routing = {"Type": kind, "WaitIntervalInSeconds": 0, **more}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (shifting("CANARY", CanarySize={}), "Not implemented by Sagehen yet"),
        (shifting("LINEAR"), "Not implemented by Sagehen yet"),
        (shifting("ALL_AT_ONCE", CanarySize={}), "do not go with"),
        ({"RollingUpdatePolicy": {}}, "Not implemented by Sagehen yet"),
        ({**ALL_AT_ONCE, "RollingUpdatePolicy": {}}, "only one of"),
        (
            {**ALL_AT_ONCE, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}},
            "Not implemented by Sagehen yet",
        ),
        (
            {
                **shifting("CANARY", CanarySize={}),
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]},
            },
            "(TrafficRoutingConfiguration CANARY) and rollback on alarms "
            "(AutoRollbackConfiguration)",
        ),
    ],
)
def test_deployment_configs_that_are_refused(server, refusal, given, said):
    assert said in refusal(
        lambda: server.CreateEndpoint(
            EndpointName="e", EndpointConfigName="c", DeploymentConfig=given
        )
    )


def test_weights_and_capacities_change_in_place(server):
    server.config("two", server.variant("a"), server.variant("b"))
    in_service(server, config="two")
    server.clock.seconds += 5
    answer = weigh(
        server,
        {"VariantName": "a", "DesiredWeight": 0.0},
        {"VariantName": "b", "DesiredInstanceCount": 2},
    )
    assert answer == {"EndpointArn": ARN + "e"}
    record = stored(server)
    assert record.status is EndpointStatus.UPDATING
    assert record.target.deployment_id == record.current.deployment_id
    described = server.DescribeEndpoint(EndpointName="e")
    assert "PendingDeploymentSummary" not in described
    a, b = described["ProductionVariants"]
    assert (a["CurrentWeight"], a["DesiredWeight"]) == (1, 0)
    assert (b["CurrentWeight"], b["DesiredWeight"], b["DesiredInstanceCount"]) == (1, 1, 2)
    assert a["VariantStatus"][0]["Status"] == "Updating"


@pytest.mark.parametrize(
    ("desired", "said"),
    [
        (
            [{"VariantName": "AllTraffic"}] * 2,
            'The variant name "AllTraffic" was non-unique within the request.',
        ),
        (
            [{"VariantName": "b"}, {"VariantName": "a"}],
            'The variant name(s) "a, b" is/are not present within endpoint configuration "c".',
        ),
        ([{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}], "at least 1"),
        ([{"VariantName": "AllTraffic", "DesiredWeight": 0}], "greater than 0"),
        ([{"VariantName": "AllTraffic", "ServerlessUpdateConfig": {}}], "serverless"),
    ],
)
def test_weights_and_capacities_that_are_refused(server, refusal, desired, said):
    in_service(server)
    assert said in refusal(lambda: weigh(server, *desired))
    assert stored(server).status is EndpointStatus.IN_SERVICE


@pytest.mark.parametrize("status", ["Creating", "Updating", "Deleting"])
def test_in_progress_endpoints_refuse_everything(server, refusal, status):
    in_service(server)
    server.config("next")
    change(server, status=EndpointStatus(status))
    said = f'Cannot update in-progress endpoint "{ARN}e".'
    assert refusal(lambda: weigh(server)) == said
    assert refusal(lambda: server.DeleteEndpoint(EndpointName="E")) == said
    assert said == refusal(
        lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    )
    assert server.hints == 1


def test_failed_endpoints_can_only_be_deleted(server, refusal):
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    change(server, status=EndpointStatus.FAILED)
    server.config("next")
    assert "Cannot update failed endpoint" in refusal(
        lambda: server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    )
    assert "Cannot update failed endpoint" in refusal(lambda: weigh(server))
    assert server.DeleteEndpoint(EndpointName="e") == {}
    assert stored(server).status is EndpointStatus.DELETING
    assert server.hints == 2
