"""Real clients of boto3 that speak another protocol than today's do."""

import gzip
import json
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

__all__ = ["speaking"]


def speaking(server: Any, service: str, protocol: str, folder: Path) -> Any:
    """A client of `server` whose model of the service, written below `folder`, has one protocol."""
    version = Loader().determine_latest_version(service, "service-2")
    model = Loader().load_service_model(service, "service-2", version)
    model["metadata"] = {**model["metadata"], "protocol": protocol, "protocols": [protocol]}
    place = folder / protocol / service / version
    place.mkdir(parents=True, exist_ok=True)
    (place / "service-2.json.gz").write_bytes(gzip.compress(json.dumps(model).encode()))
    session = botocore.session.Session()
    session.get_component("data_loader").search_paths.insert(0, str(folder / protocol))
    return boto3.Session(botocore_session=session).client(
        service,
        endpoint_url=server.url,
        aws_access_key_id=server.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=server.env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}),
    )
