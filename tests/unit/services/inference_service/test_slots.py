"""Slots: none is given twice, and each comes back with the end of its job."""

import asyncio

import msgspec
import pytest

from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.wire.errors import AwsError


@pytest.fixture
def state(any_database):
    return any_database


def statuses(house, count, **body):
    async def all_at_once():
        return await asyncio.gather(*(house.ask(body=body) for _ in range(count)))

    return sorted(one.status for one in asyncio.run(all_at_once()))


def training_count(house):
    with house.database.read() as connection:
        return len(training_jobs.TRAINING_JOBS.all(connection))


def test_many_at_once_get_no_more_than_there_are(make_house):
    house = make_house(limit=3)
    assert statuses(house, 40, type="model_a") == [200] * 3 + [502] * 37
    assert training_count(house) == 3


def test_a_slot_is_held_until_the_end_also_while_it_stops(house):
    name = house.start()
    house.request("DELETE", f"/dev/inference/{name}")
    assert house.training(name).status is JobStatus.STOPPING
    assert house.post({"type": "model_a"}).status == 502
    house.end(name, JobStatus.STOPPED)
    assert house.post({"type": "model_a"}).status == 200


@pytest.mark.parametrize(
    ("status", "secondary"),
    [
        (JobStatus.COMPLETED, None),
        (JobStatus.FAILED, None),
        (JobStatus.STOPPED, SecondaryStatus.MAX_RUNTIME_EXCEEDED),
    ],
)
def test_every_end_frees_the_slot(house, status, secondary):
    name = house.start()
    assert house.post({"type": "model_a"}).status == 502
    house.end(name, status, secondary)
    assert house.post({"type": "model_a"}).status == 200


def test_types_have_slots_of_their_own_by_their_whole_name(make_house):
    house = make_house(white_list="model-b,model-b-large,b")
    for kind in ("model-b", "model-b-large"):
        house.start(kind)
    assert house.post({"type": "model-b"}).status == 502


def test_a_limit_of_all_types_together(make_house):
    house = make_house(limit=2, total_limit=3)
    assert "and 1 slots" in house.post({"type": "model_a"}).body["errMsg"]
    assert "and 0 slots" in house.post({"type": "model_a"}).body["errMsg"]
    assert "and 0 slots" in house.post({"type": "model-b"}).body["errMsg"]
    assert "reaching limit 3." in house.post({"type": "model-b"}).body["errMsg"]
    assert "reaching limit 2." in house.post({"type": "model_a"}).body["errMsg"]


def test_foreign_training_jobs_hold_no_slot_and_are_not_told_of(house):
    house.foreign("model-a-job-2027-01-01-00-00-00-mine")
    house.start()
    house.end("model-a-job-2027-01-01-00-00-00-mine")
    assert house.facts() == []


def test_the_queue_is_worked_on_in_order(make_house):
    house = make_house(when_full="queue", profile="modern")
    first = house.start()
    waiting = [house.start() for _ in range(3)]
    other = house.start("model-b")
    assert house.job(other)["status"] == "InProgress"
    assert [house.job(name)["queuePosition"] for name in waiting] == [1, 2, 3]
    assert house.job(waiting[0])["status"] == "Queued"
    house.end(first)
    assert house.training(waiting[0]) is not None
    assert [house.job(name).get("queuePosition") for name in waiting] == [None, 1, 2]
    house.end(waiting[0])
    house.end(waiting[1])
    assert [house.job(name)["status"] for name in waiting] == ["Completed"] * 2 + ["InProgress"]


def test_a_type_that_has_room_does_not_wait_for_one_that_has_none(make_house):
    house = make_house(when_full="queue", total_limit=2)
    first, second = house.start("model_a"), house.start("model-b")
    later_a, later_b = house.start("model_a"), house.start("model-b")
    house.end(second)
    assert house.training(later_a) is None
    assert house.training(later_b) is not None
    house.end(first)
    assert house.training(later_a) is not None


def test_the_queue_has_an_end(make_house):
    house = make_house(when_full="queue", max_queued=2)
    assert statuses(house, 10, type="model_a") == [200] * 3 + [502] * 7
    assert training_count(house) == 1


def test_a_job_that_can_no_longer_be_made_is_told_of_and_the_next_begins(make_house):
    house = make_house(when_full="queue")
    first, second, third = house.start(), house.start(), house.start()
    # Its name is taken meanwhile.
    house.foreign(second)
    house.end(first)
    assert house.job(second)["status"] == "Failed"
    assert "must be unique" in house.job(second)["failureReason"]
    assert house.job(third)["status"] == "InProgress"
    assert [one["jobName"] for one in house.facts()] == [first, second]


def test_where_there_are_too_many_training_jobs_the_queue_waits_on(make_house):
    house = make_house(when_full="queue")
    first, second = house.start(), house.start()
    house.breaks = AwsError("ResourceLimitExceeded", "Too many wait.", 400)
    house.end(first)
    assert house.job(second)["status"] == "Queued"
    house.breaks = None
    sweep(house)
    assert house.job(second)["status"] == "InProgress"


def test_where_there_are_too_many_training_jobs_a_request_takes_its_place_in_the_queue(make_house):
    house = make_house(when_full="queue", max_queued=1)
    house.breaks = AwsError("ResourceLimitExceeded", "Too many wait.", 400)
    name = house.start()
    assert house.job(name)["status"] == "Queued"
    assert house.post({"type": "model_a"}).status == 502
    house.breaks = None
    sweep(house)
    assert house.job(name)["status"] == "InProgress"


def test_a_stopped_job_that_waits_leaves_the_queue_and_is_told_of(make_house):
    house = make_house(when_full="queue")
    first, second, third = house.start(), house.start(), house.start()
    answered = house.request("DELETE", f"/dev/inference/{second}")
    assert (answered.status, answered.body["status"]) == (202, "Stopped")
    assert house.training(second) is None
    assert house.job(third)["queuePosition"] == 1
    assert [one["jobName"] for one in house.facts()] == [second]
    house.end(first)
    assert house.training(third) is not None


def test_a_raised_limit_is_used_at_the_next_start(make_house):
    house = make_house(when_full="queue")
    waiting = [house.start() for _ in range(3)]
    again = make_house(when_full="queue", limit=2)
    assert again.training(waiting[1]) is not None
    assert again.training(waiting[2]) is None


def sweep(house):
    with house.database.write() as connection:
        return sum(
            house.housekeeping.sweep(connection, stage)
            for stage in house.housekeeping.stages(connection)
        )


def test_a_sweep_frees_what_nobody_holds_and_tells_of_it(make_house):
    house = make_house(when_full="queue", white_list="model_a,model-b", limit=1)
    ended, gone = house.start("model_a"), house.start("model-b")
    waiting = house.start("model_a")
    assert sweep(house) == 0
    with house.database.write() as connection:
        record = training_jobs.get_for_update(connection, ended)
        training_jobs.update(connection, msgspec.structs.replace(record, status=JobStatus.FAILED))
        training_jobs.delete(connection, gone)
    assert sweep(house) == 2
    assert {one["jobName"]: one["status"] for one in house.facts()} == {
        ended: "Failed",
        gone: "Failed",
    }
    assert house.training(waiting) is not None
    assert sweep(house) == 0


def test_an_end_that_comes_twice_is_one_end(house):
    name = house.start()
    house.end(name)
    with house.database.write() as connection:
        house.slots.on_end(connection, house.training(name))
    assert len(house.facts()) == 1


def test_a_name_that_is_used_again_is_another_job(house):
    name = house.start()
    house.end(name)
    with house.database.write() as connection:
        training_jobs.delete(connection, name)
    house.foreign(name)
    house.end(name, JobStatus.FAILED)
    assert [one["status"] for one in house.facts()] == ["Completed"]
    assert house.job(name)["status"] == "Completed"


def test_what_is_long_over_is_forgotten(make_house):
    house = make_house(history_seconds=100)
    name = house.start()
    house.end(name)
    running = house.start()
    house.clock.seconds += 99
    sweep(house)
    assert house.job(name)["status"] == "Completed"
    house.clock.seconds += 2
    sweep(house)
    assert house.request("GET", f"/dev/inference/{name}").status == 404
    assert house.job(running)["status"] == "InProgress"
