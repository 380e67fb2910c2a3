"""A job looked at, listed and stopped."""

import pytest

from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.records import SecondaryStatus


@pytest.fixture
def state(any_database):
    return any_database


def test_a_job_as_it_stands(house):
    name = house.start()
    running = house.job(name)
    assert running == {
        "jobName": name,
        "type": "model_a",
        "status": "InProgress",
        "secondaryStatus": "Starting",
        "creationTime": "2027-01-15T08:00:01.000Z",
        "startTime": None,
        "endTime": None,
        "durationSeconds": None,
        "resultUri": None,
        "failureReason": None,
    }
    house.clock.seconds += 100
    house.end(name, started_at=house.clock.seconds - 90)
    assert house.job(name) == running | {
        "status": "Completed",
        "secondaryStatus": "Completed",
        "startTime": "2027-01-15T08:00:11.000Z",
        "endTime": "2027-01-15T08:01:41.000Z",
        "durationSeconds": 90.0,
        "resultUri": f"s3://bucket/output/{name}/output/output.tar.gz",
    }


def test_a_job_that_failed(house):
    name = house.start()
    house.end(name, JobStatus.FAILED, failure_reason="AlgorithmError: x, exit code: 1")
    found = house.job(name)
    assert (found["status"], found["failureReason"]) == (
        "Failed",
        "AlgorithmError: x, exit code: 1",
    )


def test_a_job_is_stopped_once(house):
    name = house.start()
    for _ in range(2):
        answered = house.request("DELETE", f"/dev/inference/{name}")
        assert (answered.status, answered.body["status"]) == (202, "Stopping")
    house.end(name, JobStatus.STOPPED, SecondaryStatus.STOPPED)
    answered = house.request("DELETE", f"/dev/inference/{name}")
    assert (answered.status, answered.body["status"]) == (202, "Stopped")


@pytest.mark.parametrize("name", ["none", "%00", "a%2Fb", "%FF", "x" * 999])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_such_job(house, method, name):
    answered = house.request(method, f"/dev/inference/{name}")
    assert answered.status == 404
    assert "There is no job" in answered.body["message"]


def test_a_training_job_of_another_s_making_is_none_of_the_service_s(house):
    house.foreign("foreign")
    assert house.request("GET", "/dev/inference/foreign").status == 404
    assert house.request("DELETE", "/dev/inference/foreign").status == 404
    assert house.training("foreign").status is JobStatus.IN_PROGRESS


def test_pages(make_house):
    house = make_house(limit=10)
    names = [house.start() for _ in range(5)]
    house.start("model-b")
    seen, after = [], ""
    while after is not None:
        query = f"limit=2&type=model_a{after and f'&after={after}'}"
        page = house.request("GET", "/dev/inference", query).body
        seen += [job["jobName"] for job in page["jobs"]]
        after = page["next"]
    assert seen == names[::-1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=%D9%A3", "after=none", "type=%00"]
)
def test_a_bad_query(house, query):
    answered = house.request("GET", "/dev/inference", query)
    assert answered.status == 400
    assert answered.body["message"]


def test_a_page_of_one_type_does_not_read_the_others(database):
    asked = "SELECT * FROM inference_jobs WHERE stage = 'dev' AND type = 'a'"
    plan = f"EXPLAIN QUERY PLAN {asked} AND sequence < 9 ORDER BY sequence DESC LIMIT 2"
    with database.read() as connection:
        (step,) = connection.exec_driver_sql(plan).all()
    assert "ix_inference_jobs_type (stage=? AND type=? AND sequence<?)" in step.detail
