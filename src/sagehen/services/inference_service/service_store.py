"""The services by their stages, what they have answered, and the keys that open them."""

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
    """The service at `stage`; with `lock`, nobody else takes or frees its slots until this
    transaction ends."""
    found = rows.select_records(
        connection, SERVICES, ServiceRecord, SERVICES.c.stage == stage, lock=lock
    )
    return found[0] if found else None


def all_services(connection: Connection) -> list[ServiceRecord]:
    """Every service, by stage."""
    return rows.select_records(connection, SERVICES, ServiceRecord, order=[SERVICES.c.stage])


def insert(connection: Connection, record: ServiceRecord) -> bool:
    """Add a service; False where its stage has one."""
    return rows.insert_new(connection, SERVICES, record)


def update(connection: Connection, record: ServiceRecord) -> bool:
    """Write all of `record` over what is stored; False where it is gone."""
    return rows.update_where(connection, SERVICES, record, SERVICES.c.stage == record.stage)


def delete_service(connection: Connection, stage: str) -> bool:
    """Drop a service with what it remembers of answers; its jobs' rows stay."""
    connection.execute(delete(ANSWERS).where(ANSWERS.c.stage == stage))
    return rows.delete_where(connection, SERVICES, SERVICES.c.stage == stage)


def answer(
    connection: Connection, stage: str, api_key: str, idempotency_key: str
) -> AnswerRecord | None:
    """What a request with this Idempotency-Key was answered."""
    where = (
        (ANSWERS.c.stage == stage)
        & (ANSWERS.c.api_key == api_key)
        & (ANSWERS.c.idempotency_key == idempotency_key)
    )
    found = rows.select_records(connection, ANSWERS, AnswerRecord, where)
    return found[0] if found else None


def add_answer(connection: Connection, record: AnswerRecord) -> None:
    """Remember an answer. Hazard: look first, in the same transaction, with the service locked."""
    rows.insert_new(connection, ANSWERS, record)


def forget_answers(connection: Connection, stage: str, before: float) -> int:
    """Forget what was answered before then; how many there were."""
    where = (ANSWERS.c.stage == stage) & (ANSWERS.c.created_at < before)
    return connection.execute(delete(ANSWERS).where(where)).rowcount


def add_key(connection: Connection, record: ApiKeyRecord) -> bool:
    """Add an API key; False where there is one of its name."""
    return rows.insert_new(connection, API_KEYS, record)


def key_by_digest(connection: Connection, key_sha256: str) -> ApiKeyRecord | None:
    """Whose key this is. What the time of the look-up tells is of the digest, not of the key."""
    where = API_KEYS.c.key_sha256 == key_sha256
    found = rows.select_records(connection, API_KEYS, ApiKeyRecord, where)
    return found[0] if found else None


def all_keys(connection: Connection) -> list[ApiKeyRecord]:
    """Every API key, by name."""
    return rows.select_records(connection, API_KEYS, ApiKeyRecord, order=[API_KEYS.c.name])


def delete_key(connection: Connection, name: str) -> bool:
    """Drop an API key; False where there is none of that name."""
    return connection.execute(delete(API_KEYS).where(API_KEYS.c.name == name)).rowcount > 0
