"""Ids are UUIDs that follow from what they identify."""

import uuid

from sagehen.services.sagemaker.transform.data_processing.inference_ids import (
    inference_ids,
    inference_time,
)


def test_ids_are_uuids_of_version_5():
    make = inference_ids("arn:job", "in/a b.csv")
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "arn:job/in/a b.csv")
    for record in (0, 1, 99, 10**9):
        assert make(record) == str(uuid.uuid5(namespace, str(record)))


def test_ids_of_jobs_objects_and_records_differ():
    made = {
        inference_ids(job, key)(record) for job in "ab" for key in "cd" for record in range(100)
    }
    assert len(made) == 400


def test_the_time_is_that_of_the_start_in_utc():
    assert inference_time(1674264544.9) == "2023-01-21T01:29:04Z"
