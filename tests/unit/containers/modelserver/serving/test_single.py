"""The container contract for one model, over a real socket."""

import asyncio
import json
import os

import pytest

from sagehen.containers.modelserver.program import serve
from sagehen.containers.modelserver.serving.batching import BATCH_SLOTS
from support.frameworks import xgboost


@pytest.fixture
def model(base_dir, put_model, regressor):
    put_model(base_dir / "model", regressor)
    return regressor


async def test_ping_and_invocations(serving, model, rows, as_csv):
    async with serving() as server:
        client = await server.connect()
        ping = await client.request("GET", "/ping")
        assert (ping.status, ping.body) == (200, b"")
        assert ping.headers["x-sagehen-slots"] == str(BATCH_SLOTS)
        reply = await client.invoke(as_csv(rows))
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/csv; charset=utf-8"
        scores = [float(score) for score in reply.body.split(b",")]
        assert scores == model.predict(xgboost.DMatrix(rows)).tolist()


async def test_batch_transform_is_told_what_awss_xgboost_container_says(serving, model):
    async with serving() as server:
        client = await server.connect()
        reply = await client.request("GET", "/execution-parameters")
        assert reply.status == 200
        parameters = json.loads(reply.body)
        assert 1 <= parameters.pop("MaxConcurrentTransforms") <= 16
        assert parameters == {"BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 6}


async def test_many_connections_each_get_their_own_answer(serving, model, rows, as_csv):
    expected = model.predict(xgboost.DMatrix(rows)).tolist()
    async with serving() as server:
        clients = [await server.connect() for _ in rows]
        for _ in range(3):
            bodies = [as_csv(rows[at : at + 1]) for at in range(len(rows))]
            replies = await asyncio.gather(
                *(each.invoke(body) for each, body in zip(clients, bodies, strict=True))
            )
            assert [float(reply.body) for reply in replies] == expected


async def test_a_bad_row_among_good_ones(serving, model):
    async with serving() as server:
        client = await server.connect()
        for body in (b"1,2,3,4", b"1,x,3,4", b"1,2,3,4,5", b"", b"1,2,3,4"):
            client.send("POST", "/invocations", body, content_type="text/csv")
        replies = [await client.reply() for _ in range(5)]
        assert [reply.status for reply in replies] == [200, 415, 400, 204, 200]
        assert replies[0].body == replies[4].body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/ping", 405),
        ("GET", "/invocations", 405),
        ("GET", "/models", 404),
        ("GET", "/", 404),
        ("GET", "/ping?x=1", 200),
    ],
)
async def test_other_paths_and_methods(serving, model, method, path, status):
    async with serving() as server:
        assert (await (await server.connect()).request(method, path)).status == status


async def test_what_comes_before_the_model_is_loaded_may_go_elsewhere(
    put_script, base_dir, environment
):
    gate = base_dir / "gate"
    script = f"""
def model_fn(model_dir):
    with open({str(gate)!r}) as file:
        file.read()
def predict_fn(data, model): return 1
"""
    os.mkfifo(gate)
    put_script(inference=script)
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(environment("python"), stop, ready))
    reader, writer = await connected(f"{base_dir}/s.sock")
    writer.write(b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b" 503 " in await reader.readuntil(b"The model is still loading.")
    writer.write(b"POST /invocations HTTP/1.1\r\nhost: x\r\n\r\n")
    said = await reader.readuntil(b"The model is still loading.")
    assert b" 503 " in said
    assert b"x-sagehen-not-started: 1" in said
    await asyncio.to_thread(gate.write_text, "go")
    await ready.wait()
    stop.set()
    assert await task == 0
    writer.close()
    await writer.wait_closed()


async def connected(path):
    while True:
        try:
            return await asyncio.open_unix_connection(path)
        except OSError:
            await asyncio.sleep(0)
