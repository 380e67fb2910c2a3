"""SQL for services, remembered answers and API keys."""

from sqlalchemy import Connection, delete

from sagehen.services.inference_service.records import (
    AnswerRecord,
    ApiKeyRecord,
    ServiceRecord,
)
from sagehen.services.inference_service.tables import ANSWERS, API_KEYS, SERVICES
from sagehen.state import rows

__all__ = [
    "add_answer",
    "add_key",
    "all_keys",
    "all_services",
    "answer",
    "delete_key",
    "delete_service",
    "forget_answers",
    "get",
    "insert",
    "key_by_digest",
    "update",
]


def get(connection: Connection, stage: str, lock: bool = False) -> ServiceRecord | None:
    """With `lock`, its slots cannot change elsewhere until the transaction ends."""
    records = rows.select_records(
        connection, SERVICES, ServiceRecord, SERVICES.c.stage == stage, lock=lock
    )
    return records[0] if records else None


def all_services(connection: Connection) -> list[ServiceRecord]:
    return rows.select_records(connection, SERVICES, ServiceRecord, order=[SERVICES.c.stage])


def insert(connection: Connection, record: ServiceRecord) -> bool:
    return rows.insert_new(connection, SERVICES, record)


def update(connection: Connection, record: ServiceRecord) -> bool:
    """Overwrites a row; returns False where it is gone."""
    return rows.update_where(connection, SERVICES, record, SERVICES.c.stage == record.stage)


def delete_service(connection: Connection, stage: str) -> bool:
    """Deletes its answers too; its jobs stay."""
    connection.execute(delete(ANSWERS).where(ANSWERS.c.stage == stage))
    return rows.delete_where(connection, SERVICES, SERVICES.c.stage == stage)


def answer(
    connection: Connection, stage: str, api_key: str, idempotency_key: str
) -> AnswerRecord | None:
    where = (
        (ANSWERS.c.stage == stage)
        & (ANSWERS.c.api_key == api_key)
        & (ANSWERS.c.idempotency_key == idempotency_key)
    )
    records = rows.select_records(connection, ANSWERS, AnswerRecord, where)
    return records[0] if records else None


def add_answer(connection: Connection, record: AnswerRecord) -> None:
    """Hazard: look for one first, in the same transaction, with the service locked."""
    rows.insert_new(connection, ANSWERS, record)


def forget_answers(connection: Connection, stage: str, before: float) -> int:
    """Returns how many were deleted."""
    where = (ANSWERS.c.stage == stage) & (ANSWERS.c.created_at < before)
    return connection.execute(delete(ANSWERS).where(where)).rowcount


def add_key(connection: Connection, record: ApiKeyRecord) -> bool:
    return rows.insert_new(connection, API_KEYS, record)


def key_by_digest(connection: Connection, key_sha256: str) -> ApiKeyRecord | None:
    """Timing can reveal only the digest, not the key."""
    where = API_KEYS.c.key_sha256 == key_sha256
    records = rows.select_records(connection, API_KEYS, ApiKeyRecord, where)
    return records[0] if records else None


def all_keys(connection: Connection) -> list[ApiKeyRecord]:
    return rows.select_records(connection, API_KEYS, ApiKeyRecord, order=[API_KEYS.c.name])


def delete_key(connection: Connection, name: str) -> bool:
    return connection.execute(delete(API_KEYS).where(API_KEYS.c.name == name)).rowcount > 0
