"""The first tables: models, endpoint configs, endpoints, instances, tags, leases, objects."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("owner_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("blob_id", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.String(length=128), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("owner_id", "number", name=op.f("pk_blobs")),
        sa.UniqueConstraint("blob_id", name=op.f("uq_blobs_blob_id")),
    )
    op.create_table(
        "buckets",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_buckets")),
    )
    op.create_table(
        "endpoint_configs",
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("definition", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_endpoint_configs")),
    )
    op.create_index(
        op.f("ix_endpoint_configs_created_at"), "endpoint_configs", ["created_at"], unique=False
    )
    op.create_table(
        "endpoints",
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("current", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("target", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("last_deployment_config", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_endpoints")),
    )
    op.create_index(op.f("ix_endpoints_created_at"), "endpoints", ["created_at"], unique=False)
    op.create_table(
        "instances",
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("endpoint_name", sa.String(length=63), nullable=False),
        sa.Column("deployment_id", sa.String(length=64), nullable=False),
        sa.Column("variant_name", sa.String(length=63), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("stop_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_endpoint_name"), "instances", ["endpoint_name"], unique=False
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "models",
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("definition", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_created_at"), "models", ["created_at"], unique=False)
    op.create_table(
        "objects",
        sa.Column("bucket", sa.String(length=63), nullable=False),
        sa.Column("key", sa.LargeBinary(length=1024), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.String(length=128), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("bucket", "key", name=op.f("pk_objects")),
    )
    op.create_table(
        "tags",
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("value", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("arn", "key", name=op.f("pk_tags")),
    )
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String(length=64), nullable=False),
        sa.Column("bucket", sa.String(length=63), nullable=False),
        sa.Column("key", sa.LargeBinary(length=1024), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.String(length=16), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", name=op.f("pk_uploads")),
    )
    op.create_index(
        op.f("ix_uploads_bucket"), "uploads", ["bucket", "key", "upload_id"], unique=False
    )
