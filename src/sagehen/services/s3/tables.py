"""The tables of the object store."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from sagehen.state.rows import METADATA

__all__ = ["BLOBS", "BUCKETS", "OBJECTS", "STATE_IDENTITY", "UPLOADS"]

# Binary keys sort as in S3, and hold any character.
BUCKETS = Table(
    "buckets",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("created_at", Double, nullable=False),
    # BucketSettings; empty for older buckets
    Column("settings", Text),
)
OBJECTS = Table(
    "objects",
    METADATA,
    Column("bucket", String(63), primary_key=True),
    Column("key", LargeBinary(1024), primary_key=True),
    Column("object_id", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("etag", String(128), nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("checksum", Text),
    # small objects only
    Column("data", LargeBinary),
)
UPLOADS = Table(
    "uploads",
    METADATA,
    Column("upload_id", String(64), primary_key=True),
    Column("bucket", String(63), nullable=False),
    Column("key", LargeBinary(1024), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("algorithm", String(16)),
    Column("kind", String(16), nullable=False),
    Column("key_deleted", Boolean, nullable=False),
    Index(None, "bucket", "key", "upload_id"),
)
# one row: the id shared with the object files
STATE_IDENTITY = Table(
    "state_identity",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state_id", String(32), nullable=False),
)
BLOBS = Table(
    "blobs",
    METADATA,
    Column("owner_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("blob_id", String(64), nullable=False, unique=True),
    Column("size", BigInteger, nullable=False),
    Column("etag", String(128), nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("checksum", Text),
)
