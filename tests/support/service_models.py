"""Botocore's models of services, parsed once in a process: each session would do so anew."""

import functools

from botocore.loaders import JSONFileLoader
from botocore.session import get_session

__all__ = ["read_most", "read_once"]

MOST = ("s3", "sagemaker", "sagemaker-runtime")


def read_once() -> None:
    load = JSONFileLoader.load_file
    by_path = functools.cache(lambda path: load(JSONFileLoader(), path))
    JSONFileLoader.load_file = lambda self, path: by_path(path)


def read_most() -> None:
    """What most clients need, whoever makes them."""
    session = get_session()
    for service in MOST:
        session.create_client(service, "us-east-1", aws_access_key_id="", aws_secret_access_key="")
