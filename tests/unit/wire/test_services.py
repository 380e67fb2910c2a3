"""The models of the services."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from sagehen.wire import services
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parse import parse

ASKING = 4


def test_a_model_is_read_once_though_many_ask_at_once(monkeypatch):
    read, description = [], services.description
    together = threading.Barrier(ASKING)

    def reading(name, protocol=None):
        read.append(name)
        return description(name, protocol)

    def ask(_):
        together.wait(120)
        return services.service("sts")

    services._model.cache_clear()
    monkeypatch.setattr(services, "description", reading)
    with ThreadPoolExecutor(ASKING) as pool:
        models = list(pool.map(ask, range(ASKING)))
    assert read == ["sts"]
    assert len({id(one) for one in models}) == 1


@pytest.mark.parametrize(
    ("name", "shape", "operation", "body", "member"),
    [
        (
            "sagemaker",
            "ProductionVariant",
            "CreateEndpointConfig",
            b'{"ProductionVariants": [{"VariantName": "v", "New": "x"}]}',
            "ProductionVariants.1.New",
        ),
        ("sts", "GetCallerIdentityRequest", "GetCallerIdentity", b"New=x", "New"),
    ],
)
def test_members_of_a_newer_botocore_are_refused_by_name(
    monkeypatch, name, shape, operation, body, member
):
    newer = copy.deepcopy(services.description(name))
    newer["shapes"]["New"] = {"type": "string"}
    newer["shapes"][shape]["members"]["New"] = {"shape": "New"}
    loader = SimpleNamespace(load_service_model=lambda *_: newer)
    monkeypatch.setattr(services, "_loader", lambda: loader)
    model = services.ServiceModel(services.description(name), name)
    with pytest.raises(AwsError, match=f"the member '{member}' of {operation}"):
        parse(Request("POST", "/", "", {}, body), model.operation_model(operation))
