"""The status, reports of gateways, and what own paths refuse."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy.exc import DatabaseError

from sagehen.app.api.own_paths import LARGEST_REPORT_BYTES
from sagehen.app.api.status import cpu_variants
from sagehen.frame.container_specs import InstanceState
from sagehen.frame.gpus import GpuHolder, GpuList, GpuReport
from sagehen.frame.routes import AsyncPlan
from sagehen.services.inference_service import service_store as inference_services
from sagehen.services.inference_service.records import ServiceRecord, ServiceSource
from sagehen.services.s3 import object_rows
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import QueueMode
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.state.database import Database
from support.fleet import NAME, deployment, endpoint, instance
from support.own_path_server import REPORT, Sample, Server
from support.training_jobs import running_job, waiting_job
from support.transform_jobs import active_transform

IN_SERVICE, STARTING = InstanceState.IN_SERVICE, InstanceState.STARTING


@pytest.fixture
def server(database: Database) -> Server:
    return Server(database)


async def test_the_status_tells_of_the_nodes_problems(server: Server) -> None:
    status = (await server.ask("GET", "/_sagehen/status")).json
    assert status["problems"] == ["No image can be run."]
    server.agent.away = True
    assert (await server.ask("GET", "/_sagehen/status")).json["problems"] == []


async def test_the_status_tells_of_each_variant_and_instance(server: Server) -> None:
    server.add(
        endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 2), failure_reason="Once."),
        instance("i1", "d1", IN_SERVICE),
        instance("i2", "d1", STARTING),
        instance("i3", "d1", IN_SERVICE, stop_at=1.0),
    )
    server.agent.samples = [Sample("InstanceMemoryBytes", 5.0), Sample("LoadedModelCount", 3)]
    await server.report(REPORT)

    answer = (await server.ask("GET", "/_sagehen/status")).json
    assert answer["missing_walls"] == ["etc (refused): containers share /etc"]
    (told,) = answer["endpoints"]

    assert (told["name"], told["status"], told["failure_reason"]) == (NAME, "InService", "Once.")
    assert told["leaving"] == 1
    (variant,) = told["variants"]
    expected = {
        "name": "a",
        "desired": 2,
        "in_service": 1,
        "invocations": 10,
        "errors_4xx": 2,
        "mean_latency_milliseconds": 5.0,
        "p50_latency_milliseconds": pytest.approx(1.0, rel=0.01),
        "p99_latency_milliseconds": pytest.approx(1.0, rel=0.01),
        "cache_hit_ratio": 0.75,
        "memory_bytes": 5.0,
        "loaded_models": 3,
    }
    assert {key: variant[key] for key in expected} == expected
    first, second = variant["instances"]
    assert (first["id"], first["address"], first["memory_bytes"]) == ("i1", "unix:/run/i1.sock", 5)
    assert (second["id"], second["state"], second["loaded_models"]) == ("i2", "Starting", None)


async def test_the_status_has_the_last_error_unless_an_earlier_endpoint_had_it(
    server: Server,
) -> None:
    record = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1))
    server.add(record, instance("i1", "d1", IN_SERVICE))

    async def last_error(at: float) -> Any:
        error = {"at": at, "status": 400, "message": "What?"}
        await server.report(
            {"gateway": 1, "variants": [{"endpoint": NAME, "variant": "a", "LastError": error}]}
        )
        (told,) = (await server.ask("GET", "/_sagehen/status")).json["endpoints"]
        return told["variants"][0]["last_error"]

    at = record.created_at + 1
    assert await last_error(at) == {"at": at, "status": 400, "message": "What?"}
    assert await last_error(record.created_at - 1) is None


async def test_metrics_and_the_status_have_the_desired_and_the_running_instances(
    server: Server,
) -> None:
    server.add(
        endpoint(EndpointStatus.UPDATING, current=deployment("d1", 2), target=deployment("d1", 5)),
        instance("i1", "d1", IN_SERVICE),
        instance("i2", "d1", STARTING),
        instance("i3", "d1", IN_SERVICE, stop_at=1.0),
        instance("i4", "d0", IN_SERVICE),
    )
    figures = await server.figures()
    assert figures["sagehen_desired_instances", NAME, "a"] == 5
    assert figures["sagehen_running_instances", NAME, "a"] == 1
    (described,) = (await server.ask("GET", "/_sagehen/status")).json["endpoints"]
    (variant,) = described["variants"]
    assert (variant["desired"], variant["in_service"], variant["scaling"]) == (5, 1, [])


async def test_the_status_tells_how_queues_stand(server: Server) -> None:
    plan = AsyncPlan(output_path="s3://bucket/out")
    queued = msgspec.structs.replace(deployment("d1", 1), asynchronous=plan)
    server.add(endpoint(EndpointStatus.IN_SERVICE, current=queued))

    async def told() -> Any:
        return (await server.ask("GET", "/_sagehen/status")).json["endpoints"][0]["queue"]

    assert await told() == {"mode": "OPEN", "queued": 0, "in_process": 0}
    with server.database.write() as connection:
        async_requests.set_mode(connection, NAME, QueueMode.PAUSED)
    assert await told() == {"mode": "PAUSED", "queued": 0, "in_process": 0}


async def test_an_endpoint_that_is_not_asynchronous_has_no_queue(server: Server) -> None:
    server.add(endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1)))

    (told,) = (await server.ask("GET", "/_sagehen/status")).json["endpoints"]

    assert told["queue"] is None


async def test_the_status_tells_which_variant_is_a_shadow(server: Server) -> None:
    server.add(
        endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1, shadow=1)),
        instance("s1", "d1", IN_SERVICE, variant="s"),
    )

    (told,) = (await server.ask("GET", "/_sagehen/status")).json["endpoints"]

    production, shadow = told["variants"]
    assert (production["name"], production["shadow"]) == ("a", False)
    assert (shadow["name"], shadow["shadow"], shadow["in_service"]) == ("s", True, 1)


async def test_the_status_counts_jobs_that_go_on(server: Server) -> None:
    service = ServiceRecord(
        stage="prod", source=ServiceSource.API, given={}, created_at=1, modified_at=1
    )
    with server.database.write() as connection:
        for name in ("a", "b"):
            training_jobs.insert(connection, waiting_job(name))
        training_jobs.insert(connection, running_job("c"))
        transform_jobs.insert(connection, active_transform("d"))
        inference_services.insert(connection, service)
    told = (await server.ask("GET", "/_sagehen/status")).json
    assert told["training_jobs"] == {"running": 1, "waiting": 2}
    assert told["transform_jobs"] == {"running": 1, "waiting": 0}
    assert told["inference_services"] == [
        {"stage": "prod", "running": 0, "waiting": 0, "problem": None}
    ]


async def test_the_status_lists_gpus(server: Server) -> None:
    holder = GpuHolder(endpoint=NAME, variant="a", instance="i1", fraction=0.25)
    gpu = GpuReport(
        id="0", uuid="GPU-0", name="A10G", memory_mib=23028, free=0.75, holders=(holder,)
    )
    server.agent.gpu_list = GpuList(gpus=(gpu,))
    told = (await server.ask("GET", "/_sagehen/status")).json["gpus"]
    assert told["problem"] is None
    assert (told["gpus"][0]["free"], told["gpus"][0]["holders"][0]["endpoint"]) == (0.75, NAME)
    server.agent.away = True
    told = (await server.ask("GET", "/_sagehen/status")).json["gpus"]
    assert told == {"gpus": [], "problem": None, "uses_cpu": False}


def test_variants_of_gpu_types_are_named_where_they_run_on_the_cpu() -> None:
    types = {"a": "ml.g5.xlarge", "b": "ml.m5.large", "c": "serverless-2048MB"}
    endpoints = [
        {"name": name, "variants": [{"name": "main", "instance_type": kind}]}
        for name, kind in types.items()
    ]
    assert cpu_variants(endpoints) == [
        "a, variant main: ml.g5.xlarge has a GPU, and none is here: it runs on the CPU."
    ]


async def test_the_status_says_which_service_the_settings_no_longer_have(server: Server) -> None:
    service = ServiceRecord(
        stage="prod", source=ServiceSource.SETTINGS, given={}, created_at=1, modified_at=1
    )
    with server.database.write() as connection:
        inference_services.insert(connection, service)
    (told,) = (await server.ask("GET", "/_sagehen/status")).json["inference_services"]
    assert "sagehen inference-service delete prod" in told["problem"]


async def test_the_status_of_what_is_not_there_yet(server: Server) -> None:
    server.add(endpoint(EndpointStatus.CREATING, target=deployment("d1", 1)))

    (told,) = (await server.ask("GET", "/_sagehen/status")).json["endpoints"]

    (variant,) = told["variants"]
    assert (variant["in_service"], variant["desired"], variant["invocations"]) == (0, 1, 0)
    assert variant["mean_latency_milliseconds"] is None
    assert variant["memory_bytes"] is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"gateway": 1}', b"\xff"])
async def test_what_is_no_report_is_refused(server: Server, body: bytes) -> None:
    answer = await server.ask("POST", "/_sagehen/internal/gateway", body)

    assert answer.status == 400
    assert "not a gateway's report" in answer.json["message"]


async def test_a_report_has_a_bound(server: Server) -> None:
    body = b" " * (LARGEST_REPORT_BYTES + 1)

    assert (await server.ask("POST", "/_sagehen/internal/gateway", body)).status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/_sagehen/nothing", 404),
        ("GET", "/_sagehen/internal/gateway", 405),
        ("POST", "/_sagehen/health", 405),
        ("HEAD", "/_sagehen/health", 200),
    ],
)
async def test_other_paths_and_methods(server: Server, method: str, path: str, status: int) -> None:
    answer = await server.ask(method, path)
    assert answer.status == status
    if status >= 400:
        assert path in answer.json["message"]


async def test_damage_that_is_met_is_told_from_then_on(empty_state: Path, tmp_path: Path) -> None:
    state = tmp_path / "damaged.db"
    shutil.copyfile(empty_state, state)
    database = Database(f"sqlite:///{state}")
    server = Server(database)
    assert (await server.ask("GET", "/_sagehen/health")).json["state"] == "ok"
    with database.write() as connection:
        for number in range(200):
            connection.exec_driver_sql(
                "INSERT INTO buckets (name, created_at) VALUES (?, 0)", (f"bucket-{number:060}",)
            )
        page = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE name = 'buckets'"
        ).scalar_one()
    database.close()  # The log is written into the state.
    with state.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(DatabaseError, match="malformed"), database.read() as connection:
        object_rows.list_buckets(connection)
    health = await server.ask("GET", "/_sagehen/health")
    assert health.status == 503
    assert "damaged" in health.json["state"]
    assert "sagehen restore" in health.json["state"]
    assert "damaged" in (await server.ask("GET", "/_sagehen/status")).json["state"]
    database.close()
