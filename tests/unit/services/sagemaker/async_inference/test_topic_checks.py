"""The TestNotification, and what becomes of an endpoint whose topic is not there."""

import json
import logging

import msgspec
import pytest

from sagehen.services.messaging.outbox.store import NOTICES
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.records import (
    Notice,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.endpoints import in_service, settle, stored, weigh

GOOD, BAD = (f"arn:aws:sns:us-east-1:000000000000:{name}" for name in ("good", "bad"))


@pytest.fixture(autouse=True)
def model(server):
    server.model("m")


def make_topic(server, arn):
    record = SubscriptionRecord(
        arn=f"{arn}:1",
        topic_arn=arn,
        protocol="http",
        endpoint="http://127.0.0.1:1/",
        state=SubscriptionState.CONFIRMED,
        created_at=1,
        attributes={},
        token=arn,
        token_expires_at=100,
    )
    with server.database.write() as connection:
        topics.insert(connection, TopicRecord(arn=arn, created_at=1, attributes={}))
        assert subscriptions.insert(connection, record)


def notices(server):
    with server.database.read() as connection:
        rows = connection.execute(NOTICES.select().order_by(NOTICES.c.notice_id))
        return [msgspec.json.decode(row.content, type=Notice) for row in rows]


def told(server):
    return [one.topic_arn for one in notices(server)]


def config(server, name="c", success=GOOD, error=BAD):
    notification = {"SuccessTopic": success, "ErrorTopic": error}
    server.config(
        name,
        AsyncInferenceConfig={
            "OutputConfig": {
                "S3OutputPath": "s3://bucket/out",
                "NotificationConfig": {key: arn for key, arn in notification.items() if arn},
            }
        },
    )


def both(server):
    for arn in (GOOD, BAD):
        make_topic(server, arn)
    config(server)


def test_each_topic_is_tried_by_every_operation_that_deploys(server):
    both(server)
    in_service(server)
    assert told(server) == [GOOD, BAD]
    weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 2})
    settle(server)
    assert told(server) == [GOOD, BAD] * 2
    config(server, "next", error=None)
    server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    assert told(server) == [GOOD, BAD, GOOD, BAD, GOOD]
    assert len({one.message_id for one in notices(server)}) == 5


def test_the_notice_is_sagemakers(server):
    both(server)
    in_service(server)
    notice = notices(server)[0]
    assert notice.message == (
        '{"eventVersion":"1.0","eventSource":"aws:sagemaker","eventName":"TestNotification"}'
    )
    assert json.loads(notice.message)["eventName"] == "TestNotification"
    assert (notice.subject, notice.published_at) == (None, server.clock.now())


def test_one_topic_for_both_is_tried_once(server):
    make_topic(server, GOOD)
    config(server, error=GOOD)
    in_service(server)
    assert told(server) == [GOOD]


def test_real_time_endpoints_try_none(server):
    server.config("c")
    in_service(server)
    assert told(server) == []


def test_an_endpoint_whose_topic_is_missing_fails(server):
    make_topic(server, GOOD)
    config(server)
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    described = server.DescribeEndpoint(EndpointName="e")
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"].startswith("The TestNotification could not be published")
    assert BAD in described["FailureReason"]
    assert GOOD not in described["FailureReason"]
    server.DeleteEndpoint(EndpointName="e")


def test_a_topic_of_another_region_can_never_be_there(server):
    config(server, success="arn:aws:sns:eu-west-1:000000000000:good", error=None)
    server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    reason = server.DescribeEndpoint(EndpointName="e")["FailureReason"]
    assert reason.endswith("The topics of this server are arn:aws:sns:us-east-1:000000000000:NAME.")


def test_an_update_whose_topic_is_missing_changes_nothing(server):
    both(server)
    in_service(server)
    before = stored(server).current
    config(server, "next", success=GOOD + "er")
    server.UpdateEndpoint(EndpointName="e", EndpointConfigName="next")
    record = stored(server)
    assert (record.status, record.current, record.target) == ("InService", before, None)
    assert GOOD + "er" in record.failure_reason


def test_so_does_a_change_of_capacity(server):
    both(server)
    in_service(server)
    with server.database.write() as connection:
        topics.delete(connection, BAD)
    weigh(server, {"VariantName": "AllTraffic", "DesiredInstanceCount": 2})
    record = stored(server)
    assert (record.status, record.target) == (EndpointStatus.IN_SERVICE, None)
    assert BAD in record.failure_reason


def test_a_setting_lets_it_go_with_a_warning(server, caplog):
    server.configure(topics_required=False)
    config(server)
    with caplog.at_level(logging.WARNING):
        in_service(server)
    assert stored(server).failure_reason is None
    assert f"there is no topic {GOOD}, {BAD}." in caplog.text


def test_what_is_refused_is_told_to_nobody(server):
    both(server)
    server.configure(max_endpoint_instances=1)
    variant = server.variant(InitialInstanceCount=2)
    server.DeleteEndpointConfig(EndpointConfigName="c")
    output = {"S3OutputPath": "s3://bucket/o", "NotificationConfig": {"SuccessTopic": GOOD}}
    server.config("c", variant, AsyncInferenceConfig={"OutputConfig": output})
    with pytest.raises(Exception, match="request delta of 2 Instances"):
        server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")
    assert told(server) == []
