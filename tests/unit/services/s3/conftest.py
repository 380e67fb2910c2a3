"""Fixtures of these tests."""

from support.fixtures.api_s3 import bucket, make_s3, refused, s3, server
from support.fixtures.objects import foreign, local, put, remote, root, store

__all__ = [
    "bucket",
    "foreign",
    "local",
    "make_s3",
    "put",
    "refused",
    "remote",
    "root",
    "s3",
    "server",
    "store",
]
