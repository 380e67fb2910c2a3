"""What is told of a job's end, once, and to whom."""

import json

import pytest

from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.subscription_store import SUBSCRIPTIONS
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.records import SecondaryStatus


@pytest.fixture
def state(any_database):
    return any_database


TOPIC = "arn:aws:sns:us-east-1:000000000000:inference-dev"


def test_what_programs_are_told(house):
    name = house.start()
    house.clock.seconds += 3700
    house.end(name, started_at=house.clock.seconds - 3661)
    (notice,) = house.notices()
    assert notice["topic_arn"] == TOPIC
    assert notice["subject"] == f"Inference job {name}: Completed"
    assert notice["attributes"] == {
        "type": {"data_type": "String", "string_value": "model_a"},
        "status": {"data_type": "String", "string_value": "Completed"},
    }
    assert house.facts() == [
        {
            "eventId": f"{name}:Completed",
            "jobName": name,
            "type": "model_a",
            "status": "Completed",
            "secondaryStatus": "Completed",
            "creationTime": "2027-01-15T08:00:01.000Z",
            "startTime": "2027-01-15T08:00:40.000Z",
            "endTime": "2027-01-15T09:01:41.000Z",
            "durationSeconds": 3661.0,
            "resultUri": f"s3://bucket/output/{name}/output/output.tar.gz",
            "failureReason": None,
        }
    ]


def test_what_a_person_reads(house):
    name = house.start()
    house.clock.seconds += 3700
    house.end(
        name,
        JobStatus.STOPPED,
        SecondaryStatus.MAX_RUNTIME_EXCEEDED,
        started_at=house.clock.seconds - 3661,
    )
    letter = json.loads(house.notices()[0]["message"])["email"]
    assert letter == (
        "Your inference job has ended: Stopped (MaxRuntimeExceeded).\n\n"
        "Model:     model_a\n"
        f"Job:       {name}\n"
        "Status:    Stopped (MaxRuntimeExceeded)\n"
        "Accepted:  2027-01-15 08:00:01 UTC\n"
        "Started:   2027-01-15 08:00:40 UTC\n"
        "Ended:     2027-01-15 09:01:41 UTC\n"
        "Duration:  1 h 1 min 1 s\n"
        f"Result:    s3://bucket/output/{name}/output/output.tar.gz\n"
        f"Event:     {name}:Stopped"
    )


@pytest.mark.parametrize(
    ("artifacts", "result"),
    [
        (("model.tar.gz",), "model.tar.gz"),
        (("model/", "data/"), "data/"),
        ((), None),
    ],
)
def test_the_result_is_what_is_there(house, artifacts, result):
    name = house.start()
    house.end(name, artifacts=artifacts)
    (told,) = house.facts()
    assert told["resultUri"] == (result and f"s3://bucket/output/{name}/output/{result}")


def test_only_the_ends_that_are_asked_for(make_house):
    house = make_house(notify="Completed", limit=3)
    for status in (JobStatus.FAILED, JobStatus.STOPPED, JobStatus.COMPLETED):
        house.end(house.start(), status)
    assert [one["status"] for one in house.facts()] == ["Completed"]


def test_nothing_is_told_of_an_end_that_is_undone(house):
    name = house.start()
    house.slots.fill = lambda *_: 1 // 0  # What comes last breaks.
    with pytest.raises(ZeroDivisionError):
        house.end(name)
    assert house.notices() == []
    assert house.job(name)["status"] == "InProgress"
    assert house.post({"type": "model_a"}).status == 502


def subscribers(house):
    with house.database.read() as connection:
        rows = connection.execute(SUBSCRIPTIONS.select())
        return sorted((row.endpoint, row.state) for row in rows)


def test_a_topic_that_was_deleted_is_made_again_with_its_subscribers(house):
    name = house.start()
    with house.database.write() as connection:
        topics.delete(connection, TOPIC)
    house.end(name)
    assert house.job(name)["status"] == "Completed"
    assert len(house.facts()) == 1
    assert subscribers(house) == [("who@example.com", "CONFIRMED")]


def test_whoever_unsubscribes_stays_unsubscribed(house, make_house):
    with house.database.write() as connection:
        connection.execute(SUBSCRIPTIONS.delete())
    again = make_house(emails="who@example.com, new@example.com")
    assert subscribers(again) == [("new@example.com", "CONFIRMED")]


def test_a_topic_that_cannot_be_published_to_does_not_keep_the_job_from_ending(
    house, monkeypatch, caplog
):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(deliveries, "add", broken)
    name = house.start()
    house.end(name)
    assert house.job(name)["status"] == "Completed"
    assert "A notice is lost." in caplog.text
    assert house.post({"type": "model_a"}).status == 200


def test_without_the_service_the_end_is_told_all_the_same(house, make_house):
    name = house.start()
    # The settings have it no more.
    make_house(stage="other", topic="another")
    house.end(name, JobStatus.FAILED)
    assert [one["jobName"] for one in house.facts()] == [name]
