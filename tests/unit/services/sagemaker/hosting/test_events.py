"""The event of an endpoint's status."""

from sagehen.services.sagemaker.hosting.events import endpoint_event
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.fleet import NAME, deployment, endpoint


def test_the_event_shows_the_deployment_under_way() -> None:
    record = endpoint(
        EndpointStatus.UPDATING,
        current=deployment("old", 1),
        target=deployment("new", 2, weight=0.5),
        modified_at=2.5,
    )
    event = endpoint_event(record, {"team": "a"}, now=3.0)
    assert (event.source, event.region, event.account) == (
        "aws.sagemaker",
        "us-east-1",
        "000000000000",
    )
    assert (event.resources, event.happened_at) == ((record.arn,), 3.0)
    assert event.detail == {
        "EndpointName": NAME,
        "EndpointArn": record.arn,
        "EndpointConfigName": "config-new",
        "ProductionVariants": [
            {"VariantName": "a", "DesiredWeight": 0.5, "DesiredInstanceCount": 2}
        ],
        "EndpointStatus": "UPDATING",
        "CreationTime": 1000,
        "LastModifiedTime": 2500,
        "Tags": {"team": "a"},
    }


def test_a_failed_endpoint_has_its_reason() -> None:
    record = endpoint(EndpointStatus.FAILED, failure_reason="no")
    detail = endpoint_event(record, {}, now=3.0).detail
    assert (detail["EndpointStatus"], detail["FailureReason"]) == ("FAILED", "no")
    assert "ProductionVariants" not in detail


def test_every_status_has_its_name_and_every_event_its_id() -> None:
    events = [endpoint_event(endpoint(status), {}, now=1.0) for status in EndpointStatus]
    assert {event.detail["EndpointStatus"] for event in events} == {
        "CREATING",
        "IN_SERVICE",
        "UPDATING",
        "FAILED",
        "DELETING",
    }
    assert len({event.event_id for event in events}) == len(events)
