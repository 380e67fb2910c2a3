"""DescribeEndpoint: which variants are shown, and what is said of those under way."""

from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.description import describe, summarize
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.fleet import deployment, endpoint, instance

IN_SERVICE = InstanceState.IN_SERVICE


def test_a_new_endpoint_shows_its_config_and_no_variants() -> None:
    described = describe(endpoint(EndpointStatus.CREATING, target=deployment("d1", 1)), [])
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == (
        "Creating",
        "config-d1",
    )
    assert not {"ProductionVariants", "PendingDeploymentSummary", "FailureReason"} & set(described)


def test_only_instances_in_service_count() -> None:
    record = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 2, shadow=1))
    instances = [
        instance("i-1", state=IN_SERVICE),
        instance("i-2"),
        instance("i-3", state=IN_SERVICE, stop_at=5.0),
        instance("i-4", "d0", IN_SERVICE),
        instance("i-5", variant="s", state=IN_SERVICE),
    ]
    described = describe(record, instances)
    (variant,) = described["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 2)
    assert "VariantStatus" not in variant
    (shadow,) = described["ShadowProductionVariants"]
    assert (shadow["VariantName"], shadow["CurrentInstanceCount"]) == ("s", 1)


def test_a_new_deployment_is_pending_without_traffic() -> None:
    record = endpoint(
        EndpointStatus.UPDATING, current=deployment("d1", 1), target=deployment("d2", 1)
    )
    described = describe(record, [instance("i-1", state=IN_SERVICE), instance("i-2", "d2")])
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    pending = described["PendingDeploymentSummary"]
    (variant,) = pending["ProductionVariants"]
    assert pending["EndpointConfigName"] == "config-d2"
    assert (variant["CurrentWeight"], variant["CurrentInstanceCount"]) == (0.0, 0)
    assert variant["VariantStatus"][0]["Status"] == "Creating"


def test_a_change_of_counts_is_no_pending_deployment() -> None:
    record = endpoint(
        EndpointStatus.UPDATING, current=deployment("d1", 1, 1), target=deployment("d1", 3, 1)
    )
    described = describe(record, [])
    assert "PendingDeploymentSummary" not in described
    grows, stays = described["ProductionVariants"]
    (status,) = grows["VariantStatus"]
    assert (grows["DesiredInstanceCount"], status["Status"]) == (3, "Updating")
    assert status["StatusMessage"] == "Scaling out desired instance count to 3."
    assert "VariantStatus" not in stays


def test_a_deleting_endpoint_says_so_of_each_variant() -> None:
    record = endpoint(EndpointStatus.DELETING, current=deployment("d1", 1))
    (variant,) = describe(record, [])["ProductionVariants"]
    assert variant["VariantStatus"][0]["Status"] == "Deleting"


def test_a_summary_has_name_status_and_times() -> None:
    record = endpoint(EndpointStatus.FAILED)
    assert set(summarize(record)) == {
        "EndpointName",
        "EndpointArn",
        "EndpointStatus",
        "CreationTime",
        "LastModifiedTime",
    }
