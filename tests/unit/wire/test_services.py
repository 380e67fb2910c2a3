"""The models of the services."""

import threading
from concurrent.futures import ThreadPoolExecutor

from sagehen.wire import services

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
