"""Rows of services, remembered answers and API keys."""

import msgspec

from sagehen.services.inference_service import service_store as store
from sagehen.services.inference_service.records import (
    AnswerRecord,
    ApiKeyRecord,
    ServiceRecord,
    ServiceSource,
)

SERVICE = ServiceRecord(
    stage="dev", source=ServiceSource.API, given={"limit": 1}, created_at=1.0, modified_at=1.0
)
ANSWER = AnswerRecord(
    stage="dev",
    api_key="",
    idempotency_key="k",
    body_sha256="0" * 64,
    job_name="j",
    remaining=1,
    queued=False,
    created_at=5.0,
)
KEY = ApiKeyRecord(name="a", key_sha256="f" * 64, created_at=1.0)


def test_a_service_comes_back_as_it_was(any_database):
    changed = msgspec.structs.replace(SERVICE, closing=True, emails=("a@example.org",))
    with any_database.write() as connection:
        assert store.insert(connection, SERVICE)
        assert not store.insert(connection, SERVICE)
        assert store.get(connection, "dev", lock=True) == SERVICE
        assert store.update(connection, changed)
        assert store.all_services(connection) == [changed]
        assert not store.update(connection, msgspec.structs.replace(SERVICE, stage="gone"))


def test_a_deleted_service_takes_its_answers_with_it(any_database):
    with any_database.write() as connection:
        store.insert(connection, SERVICE)
        store.add_answer(connection, ANSWER)
        assert store.delete_service(connection, "dev")
        assert store.get(connection, "dev") is None
        assert store.answer(connection, "dev", "", "k") is None
        assert not store.delete_service(connection, "dev")


def test_answers_are_found_by_stage_caller_and_key_until_they_are_forgotten(any_database):
    with any_database.write() as connection:
        store.add_answer(connection, ANSWER)
        assert store.answer(connection, "dev", "", "k") == ANSWER
        assert store.answer(connection, "dev", "other", "k") is None
        assert store.answer(connection, "dev", "", "K") is None
        assert store.forget_answers(connection, "dev", 5.0) == 0
        assert store.forget_answers(connection, "dev", 5.1) == 1


def test_keys_are_found_by_their_digest(any_database):
    with any_database.write() as connection:
        assert store.add_key(connection, KEY)
        assert not store.add_key(connection, KEY)
        assert store.key_by_digest(connection, KEY.key_sha256) == KEY
        assert store.key_by_digest(connection, "0" * 64) is None
        assert store.all_keys(connection) == [KEY]
        assert store.delete_key(connection, "a")
        assert not store.delete_key(connection, "a")
