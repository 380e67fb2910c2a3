"""Services: the one of the settings at control's start, others by request."""

import asyncio
import json

import msgspec
import pytest

from sagehen.base.errors import Conflict, Invalid, NotFound, Unavailable
from sagehen.services.inference_service import service_store as inference_services
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.records import SubscriptionRecord, SubscriptionState
from sagehen.services.messaging.sns.subscription_store import SUBSCRIPTIONS
from sagehen.services.sagemaker.training import store as training_jobs

GIVEN = {"s3_bucket": "own-bucket", "white_list": ["model_a"], "limit": 1}


@pytest.fixture
def state(any_database):
    return any_database


def put(house, stage="prod", **given):
    house.clock.seconds += 1
    return house.services.put(stage, json.dumps({**GIVEN, **given}).encode())


def stages(house):
    return [one["stage"] for one in house.services.all()["services"]]


def test_the_settings_service_follows_the_settings(make_house):
    house = make_house()
    shown = house.services.get("dev")
    assert (shown["source"], shown["path"]) == ("settings", "/dev/inference")
    assert shown["settings"]["white_list"] == ["model_a", "model-b"]
    created = shown["created_at"]
    again = make_house(limit=4)
    assert again.services.get("dev")["settings"]["limit"] == 4
    assert again.services.get("dev")["created_at"] == created


def test_bucket_and_topic_are_made_and_stay(house):
    put(house, topic="own-topic")
    assert house.objects.bucket("own-bucket")
    house.services.delete("prod")
    assert house.objects.bucket("own-bucket")
    with house.database.read() as connection:
        assert topics.get(connection, "arn:aws:sns:us-east-1:000000000000:own-topic")


def subscribers(house, topic="inference-prod"):
    with house.database.read() as connection:
        rows = connection.execute(SUBSCRIPTIONS.select())
        mine = [row for row in rows if row.topic_arn.endswith(f":{topic}")]
        return sorted(row.endpoint for row in mine if row.state == "CONFIRMED")


class TestAddresses:
    def test_who_is_taken_out_gets_no_more_mail_and_may_come_back(self, house):
        put(house, emails="a@example.com, b@example.com")
        put(house, emails="b@example.com")
        assert subscribers(house) == ["b@example.com"]
        put(house, emails="")
        assert subscribers(house) == []
        put(house, emails="a@example.com")
        assert subscribers(house) == ["a@example.com"]

    def test_the_settings_of_the_file_are_no_different(self, make_house):
        assert subscribers(make_house(), "inference-dev") == ["who@example.com"]
        assert subscribers(make_house(emails=""), "inference-dev") == []

    def test_who_subscribed_by_other_means_stays(self, house):
        put(house)
        topic_arn = "arn:aws:sns:us-east-1:000000000000:inference-prod"
        own = SubscriptionRecord(
            arn=f"{topic_arn}:8f14e45f-ceea-467f-a8d4-6f1d2a4a2f10",
            topic_arn=topic_arn,
            protocol="email",
            endpoint="a@example.com",
            state=SubscriptionState.CONFIRMED,
            created_at=1.0,
            attributes={},
            token="t",
            token_expires_at=2.0,
        )
        with house.database.write() as connection:
            subscriptions.insert(connection, own)
        put(house, emails="a@example.com")
        put(house, emails="")
        assert subscribers(house) == ["a@example.com"]

    def test_another_topic_has_all_of_them_and_the_old_one_none(self, house):
        put(house, "other", topic="shared")
        put(house, emails="a@example.com")
        put(house, emails="a@example.com", topic="shared")
        assert (subscribers(house), subscribers(house, "shared")) == ([], ["a@example.com"])

    def test_jobs_that_have_not_ended_are_told_of_at_the_old_one(self, house):
        put(house, require_api_key=False, emails="a@example.com, b@example.com")
        body = b'{"type": "model_a"}'
        assert asyncio.run(house.ask(path="/prod/inference", body=body)).status == 200
        put(house, require_api_key=False, emails="a@example.com", topic="new")
        assert subscribers(house) == subscribers(house, "new") == ["a@example.com"]

    def test_of_a_topic_of_two_services_the_last_takes_it_away(self, house):
        for stage in ("prod", "other"):
            put(house, stage, emails="a@example.com", topic="shared")
        put(house, topic="shared")
        assert subscribers(house, "shared") == ["a@example.com"]
        put(house, "other", topic="shared")
        assert subscribers(house, "shared") == []


class TestSettingsThatAreNoneAnyMore:
    @pytest.fixture(autouse=True)
    def aged(self, house):
        """As after an update, by whose rules what is kept is wrong."""
        put(house, require_api_key=False)
        with house.database.write() as connection:
            record = inference_services.get(connection, "prod")
            given = {**record.given, "limit": 0}
            inference_services.update(connection, msgspec.structs.replace(record, given=given))

    def test_what_is_wrong_is_told_and_the_others_are_shown(self, house):
        shown = {one["stage"]: one for one in house.services.all()["services"]}
        assert (shown["dev"]["problem"], shown["dev"]["settings"]["limit"]) == (None, 1)
        assert shown["prod"] == house.services.get("prod")
        assert (shown["prod"]["settings"], shown["prod"]["given"]["limit"]) == (None, 0)
        assert shown["prod"]["problem"] == (
            "The settings of the inference service at 'prod' are not valid any more: limit: Input "
            "should be greater than or equal to 1. PUT it again, with what this version takes."
        )

    def test_requests_are_told_so_until_it_is_put_again(self, house):
        answer = asyncio.run(house.ask(path="/prod/inference", body={"type": "model_a"}))
        assert answer.status == 503
        assert "limit: Input should be" in answer.body["message"]
        put(house, require_api_key=False)
        answer = asyncio.run(house.ask(path="/prod/inference", body={"type": "model_a"}))
        assert answer.status == 200
        assert house.services.get("prod")["problem"] is None


def test_a_start_changes_nothing_that_is_so_already(make_house):
    house = make_house()
    before = house.services.get("dev")
    again = make_house()
    again.clock.seconds += 100
    again.services.begin()
    assert again.services.get("dev") == before
    with again.database.read() as connection:
        assert len(connection.execute(SUBSCRIPTIONS.select()).all()) == 1


def test_a_store_that_is_away_does_not_keep_control_from_starting(make_house, caplog):
    house = make_house()
    house.objects.delete_bucket("bucket")

    def away(_):
        raise Unavailable("The store is away.")

    house.objects.create_bucket = away
    house.services.begin()
    assert "The store is away." in caplog.text
    assert house.post({"type": "model_a"}).status == 500


def test_put_twice_changes_nothing_and_another_replaces_all_of_it(house):
    first = put(house, limit=3)
    house.clock.seconds += 1
    assert put(house, limit=3) == first
    second = put(house, profile="modern")
    assert second["modified_at"] > first["modified_at"]
    assert second["created_at"] == first["created_at"]
    assert (second["settings"]["limit"], second["settings"]["profile"]) == (1, "modern")


def test_services_are_apart(house):
    put(house, require_api_key=False)
    house.start("model_a")
    assert house.request("POST", "/prod/inference").status == 501
    with house.database.read() as connection:
        assert inference_services.get(connection, "prod").stage == "prod"
    assert house.services.get("prod")["active_jobs"] == 0
    assert house.services.get("dev")["active_jobs"] == 1


def test_a_raised_limit_begins_who_waits(house):
    put(house, require_api_key=False, when_full="queue")
    body = json.dumps({"type": "model_a"}).encode()
    for _ in range(3):
        asyncio.run(house.ask("POST", "/prod/inference", body=body))
    shown = put(house, require_api_key=False, when_full="queue", limit=2)
    assert (shown["active_jobs"], shown["queued_jobs"]) == (2, 1)


def test_while_it_is_deleted_it_takes_nothing_and_is_not_changed(house):
    put(house)
    with house.database.write() as connection:
        house.services._close(connection, stage="prod")
    assert house.request("POST", "/prod/inference").status == 404
    with pytest.raises(Conflict, match="being deleted"):
        put(house)
    # It was cut short: DELETE goes on with it.
    house.services.delete("prod")
    assert stages(house) == ["dev"]


def test_of_two_deletes_the_slower_leaves_the_next_service_alone(house, monkeypatch):
    put(house)

    def meanwhile(stage):
        monkeypatch.undo()
        house.services.delete(stage)
        house.clock.seconds += 1
        put(house)
        return []

    monkeypatch.setattr(house.services, "_active", meanwhile)
    house.services.delete("prod")
    assert house.services.get("prod")["closing"] is False


def test_settings_that_a_newer_version_refuses_keep_no_job_from_ending(house, caplog):
    put(house, when_full="queue", require_api_key=False, emails=["a@example.com"])
    body = b'{"type": "model_a"}'
    for _ in range(2):
        assert asyncio.run(house.ask(path="/prod/inference", body=body)).status == 200
    listed = asyncio.run(house.ask("GET", "/prod/inference")).body["jobs"]
    (active,) = [one["jobName"] for one in listed if house.training(one["jobName"])]
    with house.database.write() as connection:
        record = inference_services.get(connection, "prod")
        given = {**record.given, "limit": 0}
        inference_services.update(connection, msgspec.structs.replace(record, given=given))
    house.end(active)
    assert "not valid any more" in caplog.text
    with house.database.write() as connection:
        assert house.housekeeping.sweep(connection, "prod") == 0
    assert house.services.delete("prod")["removed_jobs"] == 1
    assert sorted(one["status"] for one in house.facts()) == ["Completed", "Stopped"]


def test_a_deleted_service_s_jobs_are_told_of(house):
    put(house, require_api_key=False, when_full="queue", emails="who@example.com")
    body = json.dumps({"type": "model_a"}).encode()
    for _ in range(2):
        asyncio.run(house.ask("POST", "/prod/inference", body=body))
    with house.database.read() as connection:
        (running,) = [job.name for job in training_jobs.TRAINING_JOBS.all(connection)]
    assert house.services.delete("prod") == {
        "stage": "prod",
        "removed_jobs": 1,
        "stopped_jobs": 1,
    }
    house.end(running)
    told = {one["jobName"]: one["status"] for one in house.facts()}
    assert len(told) == 2
    assert told[running] == "Completed"


class TestServiceThatTheSettingsNoLongerHave:
    """A start without sagehen.toml, or with another, is a mistake more often than a decision."""

    @pytest.fixture(params=[{"s3_bucket": None}, {"stage": "test"}], ids=["none", "another"])
    def other(self, request, make_house):
        """A server without the section of `dev`, started after one that had it."""
        self.house = make_house(when_full="queue", emails="who@example.com")
        self.running, self.waiting = self.house.start(), self.house.start()
        return make_house(**request.param)

    def test_a_start_deletes_nothing_and_says_what_to_do(self, other, caplog):
        shown = other.services.get("dev")
        assert (shown["active_jobs"], shown["queued_jobs"]) == (1, 1)
        assert shown["problem"] == (
            "The inference service at 'dev' takes no new jobs and begins none of those that wait: "
            "it was described by settings that this server was not started with. Start the server "
            "with its section [inference_service]; or delete it, with its jobs: sagehen "
            "inference-service delete dev"
        )
        warned = [one.getMessage() for one in caplog.get_records("setup")]
        assert shown["problem"] in warned
        assert other.facts() == []
        assert other.job(self.waiting)["status"] == "Queued"

    def test_jobs_that_run_end_as_ever_and_those_that_wait_go_on_waiting(self, other):
        other.end(self.running)
        with other.database.write() as connection:
            assert other.housekeeping.sweep(connection, "dev") == 0
        assert [one["jobName"] for one in other.facts()] == [self.running]
        assert other.job(self.waiting)["queuePosition"] == 1
        assert other.training(self.waiting) is None

    def test_a_request_is_refused_for_now(self, other):
        refused = other.post({"type": "model_a"})
        assert refused.status == 503
        assert "takes no new jobs" in refused.body["message"]
        assert other.services.get("dev")["queued_jobs"] == 1

    def test_with_its_section_all_goes_on(self, other, make_house):
        other.end(self.running)
        again = make_house(when_full="queue", emails="who@example.com")
        assert again.job(self.waiting)["status"] == "InProgress"
        assert again.services.get("dev")["problem"] is None
        assert again.post({"type": "model_a"}).status == 200

    def test_it_is_deleted_where_somebody_says_so(self, other):
        assert other.services.delete("dev") == {
            "stage": "dev",
            "removed_jobs": 1,
            "stopped_jobs": 1,
        }
        assert "dev" not in stages(other)
        assert [(one["jobName"], one["status"]) for one in other.facts()] == [
            (self.waiting, "Stopped")
        ]

    def test_put_makes_it_a_service_of_its_own(self, other):
        shown = put(other, "dev", require_api_key=False, when_full="queue", limit=2)
        assert (shown["source"], shown["problem"]) == ("api", None)
        assert (shown["active_jobs"], shown["queued_jobs"]) == (2, 0)


def test_what_cannot_be(house):
    with pytest.raises(NotFound):
        house.services.delete("prod")
    with pytest.raises(NotFound):
        house.services.get("prod")
    with pytest.raises(Conflict, match=r"sagehen\.toml"):
        put(house, stage="dev")
    with pytest.raises(Conflict, match=r"sagehen\.toml"):
        house.services.delete("dev")
    for body in (b"", b"[]", b"\xff", b"[" * 100_000, b'{"s3_bucket": "x"}', b"{}"):
        with pytest.raises(Invalid):
            house.services.put("prod", body)
    with pytest.raises(Invalid, match=r"stage: String should match"):
        house.services.put("a b", json.dumps(GIVEN).encode())
    house.settings = house.settings.model_copy(update={"smtp_host": None})
    house.services._settings = house.settings
    with pytest.raises(Invalid, match="smtp_host"):
        put(house, emails="who@example.com")
    assert stages(house) == ["dev"]
