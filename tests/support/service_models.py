"""Botocore's models of services, parsed once in a process: each session would do so anew."""

import functools

from botocore.loaders import JSONFileLoader
from botocore.session import get_session

__all__ = ["read_most", "read_once"]

CHANGED = ("/s3/", "/sqs/")
"""Of these botocore's client of S3 changes what was read, and so do moto's additions to SQS: each
reader has its own."""
MOST = ("s3", "sagemaker", "sagemaker-runtime")


def read_once() -> None:
    load = JSONFileLoader.load_file
    by_path = functools.cache(lambda path: load(JSONFileLoader(), path))

    def read(self: JSONFileLoader, path: str) -> object:
        return load(self, path) if any(name in path for name in CHANGED) else by_path(path)

    JSONFileLoader.load_file = read


def read_most() -> None:
    """What most clients need, whoever makes them."""
    session = get_session()
    for service in MOST:
        session.create_client(service, "us-east-1", aws_access_key_id="", aws_secret_access_key="")
