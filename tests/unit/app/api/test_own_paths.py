"""Health and metrics, as own paths answer them."""

import pytest

from sagehen import __version__
from sagehen.app.api.own_paths import OwnPaths
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.services.monitoring.prometheus.gateway_totals import Observations
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from support.fleet import NAME, deployment, endpoint
from support.own_path_server import REPORT, Sample, Server


@pytest.fixture
def server(database: Database) -> Server:
    return Server(database)


async def test_healthy_where_the_state_and_the_agent_answer(server: Server) -> None:
    answer = await server.ask("GET", "/_sagehen/health")

    assert answer.status == 200
    assert answer.json == {"ready": True, "state": "ok", "agent": "ok"}


async def test_not_healthy_without_the_agent(server: Server) -> None:
    server.agent.away = True

    answer = await server.ask("GET", "/_sagehen/health")

    assert answer.status == 503
    assert answer.json == {"ready": False, "state": "ok", "agent": "The agent is away."}


async def test_not_healthy_without_the_state(tmp_path, server: Server) -> None:
    nowhere = Database(f"sqlite:///{tmp_path / 'no' / 'state.db'}")
    server.app = OwnPaths(Observations(SYSTEM), nowhere, server.agent).app

    answer = await server.ask("GET", "/_sagehen/health")

    assert answer.status == 503
    # Anybody may ask: neither the database's address nor the driver's text is said.
    assert answer.json["state"] == "It cannot be reached now; the log of control says why."


async def test_a_server_without_a_cluster_says_so(server: Server) -> None:
    for method, path in (("GET", ""), ("PUT", "/nodes/x/drain")):
        answer = await server.ask(method, f"/_sagehen/cluster{path}")
        assert answer.status == 404
        assert answer.json["message"].startswith("This server is not in a cluster. Start one:")


async def test_a_path_says_so_when_the_state_is_away(tmp_path, server: Server) -> None:
    nowhere = Database(f"sqlite:///{tmp_path / 'no' / 'state.db'}")
    server.app = OwnPaths(Observations(SYSTEM), nowhere, server.agent).app

    answer = await server.ask("GET", "/_sagehen/status")

    assert answer.status == 503
    message = "The state cannot be reached now: unable to open database file"
    assert answer.json == {"message": message}


async def test_what_gateways_report_is_exposed(server: Server) -> None:
    server.add(endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1)))

    assert (await server.report(REPORT)).status == 204

    figures = await server.figures()
    assert figures["sagehen_invocations_total", NAME, "a"] == 10
    assert figures["sagehen_invocation_4xx_errors_total", NAME, "a"] == 2
    assert figures["sagehen_model_cache_hits_total", NAME, "a"] == 6
    assert figures["sagehen_model_cache_lookups_total", NAME, "a"] == 8
    assert figures["sagehen_model_latency_microseconds_sum", NAME, "a"] == 50_000
    assert figures["sagehen_model_latency_microseconds_count", NAME, "a"] == 10
    assert figures["sagehen_model_loading_wait_time_microseconds_count", NAME, "a"] == 2
    assert figures["sagehen_invocations_per_instance_total", NAME, "a"] == 2.5
    assert figures["sagehen_shadow_copies_dropped_total", NAME, "a"] == 3
    assert figures["sagehen_concurrent_requests_min", NAME, "a"] == 1
    assert figures["sagehen_concurrent_requests_max", NAME, "a"] == 7
    assert figures["sagehen_queued_requests", NAME, "a"] == 3
    assert figures["sagehen_queued_requests_max", NAME, "a"] == 4
    latency = "sagehen_model_latency_microseconds"
    assert figures[latency, NAME, "a", "0.5"] == pytest.approx(1_000, rel=0.01)
    assert figures[latency, NAME, "a", "0.9"] == pytest.approx(1_000, rel=0.01)
    assert figures[latency, NAME, "a", "0.99"] == pytest.approx(1_000, rel=0.01)
    assert figures["sagehen_endpoint_status", NAME, "InService"] == 1
    assert figures["sagehen_limit_hits_total", "queue"] == 3
    assert figures["sagehen_limit_hits_total", "head"] == 0


async def test_what_containers_count_is_exposed_by_container(server: Server) -> None:
    server.add(endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1)))
    whole = next(one for one in REPORT["variants"] if one["Invocations"] == 10)

    await server.report({**REPORT, "variants": [whole, whole | {"container": "clean"}]})

    figures = await server.figures()
    assert figures["sagehen_container_invocations_total", NAME, "a", "clean"] == 10
    assert figures["sagehen_container_invocation_4xx_errors_total", NAME, "a", "clean"] == 2
    assert figures["sagehen_container_latency_microseconds_sum", NAME, "a", "clean"] == 50_000
    assert figures["sagehen_container_overhead_latency_microseconds_count", NAME, "a", "clean"] == 0
    assert figures["sagehen_invocations_total", NAME, "a"] == 20


async def test_an_endpoint_that_is_gone_is_not_exposed(server: Server) -> None:
    await server.report({**REPORT, "limit_hits": {}})

    assert await server.figures() == {}


async def test_what_the_agent_tells_is_exposed(server: Server) -> None:
    server.agent.samples = [
        Sample("InstanceMemoryBytes", 2.0**20),
        Sample("LoadedModelCount", 3),
        Sample("ModelLoadingTimeSum", 1200),
        Sample("ModelLoadingTimeCount", 4),
        Sample("ModelLoadingWaitTimeSum", 77),
        Sample("ModelLoadingWaitTimeCount", 7),
        Sample("SomethingNewer", 1),
    ]

    assert await server.figures() == {
        ("sagehen_instance_memory_bytes", NAME, "a", "i1"): 2.0**20,
        ("sagehen_loaded_model_count", NAME, "a", "i1"): 3,
        ("sagehen_model_loading_time_microseconds_sum", NAME, "a", "i1"): 1200,
        ("sagehen_model_loading_time_microseconds_count", NAME, "a", "i1"): 4,
    }


async def test_metrics_do_without_an_agent_that_is_away(server: Server) -> None:
    server.agent.away = True
    server.add(endpoint(EndpointStatus.CREATING, target=deployment("d1", 1)))

    assert await server.figures() == {
        ("sagehen_endpoint_status", NAME, "Creating"): 1,
        ("sagehen_desired_instances", NAME, "a"): 1,
        ("sagehen_running_instances", NAME, "a"): 0,
    }


async def test_metrics_name_the_build_and_the_database(server: Server) -> None:
    figures = await server.all_figures()
    assert figures["sagehen_build_info", __version__] == 1
    assert figures["sagehen_database_up",] == 1
    assert 0 < figures["sagehen_database_response_seconds",] < 60


async def test_metrics_say_that_the_database_is_away(tmp_path, server: Server) -> None:
    nowhere = Database(f"sqlite:///{tmp_path / 'no' / 'state.db'}")
    server.app = OwnPaths(Observations(SYSTEM), nowhere, server.agent).app
    assert await server.all_figures() == {
        ("sagehen_build_info", __version__): 1,
        ("sagehen_database_up",): 0,
    }


async def test_metrics_say_so_when_all_connections_wait_for_the_database(server: Server) -> None:
    server.app = OwnPaths(Observations(SYSTEM), BusyDatabase("sqlite://"), server.agent).app
    assert (await server.all_figures())["sagehen_database_up",] == 0


class BusyDatabase(Database):
    def read(self):
        raise Unavailable("All connections to the database are in use.")
