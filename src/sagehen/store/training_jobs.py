"""The training jobs: one row each, from CreateTrainingJob to DeleteTrainingJob."""

from sqlalchemy import JSON, Boolean, Column, Double, Index, Integer, String, Table, Text

from sagehen.domain.training import TrainingJobRecord
from sagehen.store.named import Named
from sagehen.store.tables import METADATA

__all__ = ["TRAINING_JOBS", "delete", "get", "get_for_update", "insert", "list_page", "update"]

TRAINING_JOBS = Named(
    Table(
        "training_jobs",
        METADATA,
        Column("key", String(63), primary_key=True),
        Column("name", String(63), nullable=False),
        Column("arn", String(256), nullable=False),
        Column("created_at", Double, nullable=False, index=True),
        Column("definition", JSON(none_as_null=True), nullable=False),
        Column("job_id", String(32), nullable=False, unique=True),
        Column("modified_at", Double, nullable=False),
        Column("status", String(16), nullable=False),
        Column("transitions", JSON(none_as_null=True), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("retries", Integer, nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("run_seconds", Double, nullable=False),
        Column("failure_reason", Text),
        Column("stop_requested_at", Double),
        Column("has_artifacts", Boolean, nullable=False),
        Column("metrics", JSON(none_as_null=True), nullable=False),
        Index(None, "status", "created_at"),
    ),
    TrainingJobRecord,
)

insert = TRAINING_JOBS.insert
get = TRAINING_JOBS.get
get_for_update = TRAINING_JOBS.get_for_update
update = TRAINING_JOBS.update
delete = TRAINING_JOBS.delete
list_page = TRAINING_JOBS.list_page
