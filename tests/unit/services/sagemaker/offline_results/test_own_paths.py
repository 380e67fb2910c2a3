"""The own paths of offline results."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.base.clock import SYSTEM
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.services.sagemaker.offline_results.building import BuildReport
from sagehen.services.sagemaker.offline_results.builds import StoreBuilds
from sagehen.services.sagemaker.offline_results.own_paths import OfflineResultPaths
from sagehen.services.sagemaker.offline_results.stores import requested_stores
from support.endpoints import change, stored
from support.offline_results import MemoryBuilds

V = "SAGEHEN_OFFLINE_RESULTS"
VARIABLES = {V: "s3://results/job/", f"{V}_KEY": "0", f"{V}_ONLY": "true"}


class House:
    def __init__(self, server, home, clock) -> None:
        self.server = server
        self.memory = MemoryBuilds(home.offline_results)
        self.builds = StoreBuilds(home.offline_results, self.memory.build, clock)
        self.hints = 0
        paths = OfflineResultPaths(server.database, self.builds, self._hint, SYSTEM)
        self.client = TestClient(Starlette(routes=paths.routes))
        server.CreateModel(
            ModelName="m",
            PrimaryContainer={"Image": "sagemaker-xgboost:1.7-1", "Environment": VARIABLES},
        )
        server.config("c")
        server.CreateEndpoint(EndpointName="e", EndpointConfigName="c")

    def _hint(self) -> None:
        self.hints += 1

    def get(self, path: str = "", status: int = 200):
        answer = self.client.get(f"/_sagehen/offline-results{path}")
        assert answer.status_code == status, answer.text
        return answer.json()

    def refresh(self, name: str = "e", status: int = 200):
        answer = self.client.post(f"/_sagehen/offline-results/{name}/refresh")
        assert answer.status_code == status, answer.text
        return answer.json()

    def build(self) -> None:
        """What reconcile does."""

        async def build() -> None:
            requests = requested_stores([stored(self.server)])
            self.builds.require(requests, self.builds.states)
            while any(map(self.builds.is_building, (each.file for each in requests))):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        asyncio.run(build())

    def in_service(self) -> None:
        target = stored(self.server).target
        change(self.server, status=EndpointStatus.IN_SERVICE, current=target, target=None)


@pytest.fixture
def house(server, home, clock) -> House:
    return House(server, home, clock)


def test_a_store_is_described_from_its_first_build_on(house) -> None:
    (building,) = house.get()["offline_results"]
    assert building == {
        "endpoint": "e",
        "variant": "AllTraffic",
        "source": "s3://results/job/",
        "key": "0",
        "answer": "rest",
        "request_key": "0",
        "only": True,
        "max_broken_rows": None,
        "state": "Building",
        "failure": None,
        "keys": None,
        "rows": None,
        "bytes": None,
        "built_at": None,
        "broken_rows": None,
        "broken_examples": [],
    }
    house.build()
    (ready,) = house.get("/e")["offline_results"]
    assert (ready["state"], ready["keys"], ready["built_at"]) == ("Ready", 1, 5.0)
    assert ready["bytes"] > 0


def test_a_failed_refresh_is_described_with_the_store_that_serves(house) -> None:
    house.build()
    house.in_service()
    assert house.refresh() == {"refreshing": ["AllTraffic"]}
    assert house.hints == 1
    assert stored(house.server).current.variants[0].offline_results.revision == 1
    assert stored(house.server).status is EndpointStatus.IN_SERVICE
    house.memory.reports = [BuildReport(failure="row 3 is broken.", is_final=True)]
    house.build()
    (failed,) = house.get("/e")["offline_results"]
    assert (failed["state"], failed["failure"], failed["keys"]) == ("Failed", "row 3 is broken.", 1)


def test_only_what_is_in_service_is_refreshed(house) -> None:
    assert house.refresh(status=409)["message"] == (
        "Endpoint e is Creating. Its results can be refreshed when it is InService; an update "
        "reads them anyway."
    )
    assert house.hints == 0


@pytest.mark.parametrize("status", [EndpointStatus.UPDATING, EndpointStatus.DELETING])
def test_a_change_under_way_is_a_conflict(house, status) -> None:
    house.in_service()
    change(house.server, status=status)
    assert status.value in house.refresh(status=409)["message"]
    assert house.hints == 0


def test_endpoints_without_results_are_missing(house) -> None:
    house.server.model("plain")
    house.server.config("p", house.server.variant(ModelName="plain"))
    house.server.CreateEndpoint(EndpointName="plain", EndpointConfigName="p")
    for name in ("plain", "other"):
        assert "offline results" in house.get(f"/{name}", 404)["message"]
        house.refresh(name, 404)
