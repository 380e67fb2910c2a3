"""Answers in pieces, from a script's generator to the connection."""

import asyncio
import re

import pytest

from sagehen.containers.modelserver.serving.streaming import AHEAD_BYTES

STEPS = """
import time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return Path(body.decode())
def reached(file):
    while not file.exists():
        time.sleep(0.001)
"""
IN_STEPS = """
def predict_fn(folder, model):
    yield "one"
    reached(folder / "go")
    yield b""
    yield b"two"
"""
IN_STEPS_ASYNC = """
async def chunks(folder):
    yield "one"
    reached(folder / "go")
    yield b"two"

def predict_fn(folder, model): return folder
def output_fn(folder, accept): return chunks(folder), "text/event-stream"
"""
BREAKS = """
def predict_fn(folder, model):
    yield "one"
    reached(folder / "go")
    raise ValueError("no more")
"""
ENDLESS = """
def predict_fn(folder, model):
    made = 0
    try:
        while True:
            yield bytes(10_000)
            made += 10_000
            (folder / "made").write_text(str(made))
    finally:
        (folder / "closed").touch()
"""
FAILS = """
def predict_fn(folder, model):
    raise ValueError("not a word")
    yield "one"
"""
NOTHING = """
def predict_fn(folder, model): return iter(())
"""
NO_PIECE = """
def predict_fn(folder, model): yield 42
"""
HEADERS = """
def output_fn(folder, accept, context):
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "a=b")
    yield "one"
def predict_fn(folder, model): return folder
"""


@pytest.fixture
def script(put_script):
    def put(text):
        put_script(inference=STEPS + text)

    return put


async def head(client):
    return (await client.reader.readuntil(b"\r\n\r\n")).decode()


async def piece(client):
    size = int(await client.reader.readline(), 16)
    return (await client.reader.readexactly(size + 2))[:-2]


def ask(client, folder):
    client.send("POST", "/invocations", str(folder).encode())


async def until_exists(path):
    while not path.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("text", "content_type"),
    [(IN_STEPS, "application/json"), (IN_STEPS_ASYNC, "text/event-stream")],
)
async def test_a_piece_is_sent_before_the_next_is_made(
    serving, script, tmp_path, text, content_type
):
    script(text)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        began = await head(client)
        assert "Transfer-Encoding: chunked" in began
        assert f"content-type: {content_type}" in began
        assert await piece(client) == b"one"
        (tmp_path / "go").touch()
        assert await piece(client) == b"two"
        assert await piece(client) == b""
        # The connection is kept.
        assert (await client.request("GET", "/ping")).status == 200


async def test_a_stream_waits_for_its_turn(serving, script, tmp_path):
    script(IN_STEPS)
    (tmp_path / "go").touch()
    async with serving("python", SAGEMAKER_MODEL_SERVER_WORKERS="2") as server:
        client = await server.connect()
        for _ in range(3):
            ask(client, tmp_path)
        client.send("GET", "/ping")
        for _ in range(3):
            await head(client)
            assert [await piece(client) for _ in range(3)] == [b"one", b"two", b""]
        assert (await client.reply()).status == 200


async def test_an_error_in_the_middle_cuts_the_connection(serving, script, tmp_path, capfd):
    script(BREAKS)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        await head(client)
        assert await piece(client) == b"one"
        (tmp_path / "go").touch()
        assert await client.reader.read() == b""  # and no chunk of length 0
        assert "ValueError: no more" in capfd.readouterr().err
        again = await server.connect()
        assert (await again.request("GET", "/ping")).status == 200


@pytest.mark.parametrize(("text", "why"), [(FAILS, b"not a word"), (NO_PIECE, b"of type int")])
async def test_an_error_before_the_first_piece_is_an_ordinary_one(
    serving, script, tmp_path, text, why
):
    script(text)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        answer = await client.reply()
        assert answer.status == 500
        assert why in answer.body


async def test_without_a_piece_the_answer_is_empty(serving, script, tmp_path):
    script(NOTHING)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        answer = await client.reply()
        assert (answer.status, answer.body) == (200, b"")


async def test_a_generator_may_set_headers_before_its_first_piece(serving, script, tmp_path):
    script(HEADERS)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        assert "X-Amzn-SageMaker-Custom-Attributes: a=b" in await head(client)


async def test_a_slow_reader_holds_the_generator_back_and_its_end_closes_it(
    serving, script, tmp_path
):
    script(ENDLESS)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        client.writer.transport.pause_reading()
        await until_exists(tmp_path / "made")
        made, before = 1, 0
        while made != before:
            before = made
            await asyncio.sleep(0.05)
            made = int((tmp_path / "made").read_text() or 1)
        assert made < 10_000_000 + AHEAD_BYTES
        client.writer.transport.abort()
        await until_exists(tmp_path / "closed")
        again = await server.connect()
        assert (await again.request("GET", "/ping")).status == 200


async def test_a_stream_nobody_reads_does_not_keep_the_server_from_ending(
    serving, script, tmp_path, monkeypatch
):
    monkeypatch.setattr("sagehen.containers.modelserver.program.DRAIN_SECONDS", 0.1)
    script(ENDLESS)
    async with serving("python") as server:
        client = await server.connect()
        ask(client, tmp_path)
        client.writer.transport.pause_reading()
        await until_exists(tmp_path / "made")
        server.stop.set()
        assert await server.task == 0


async def test_an_http_1_0_client_gets_the_plain_body(serving, script, tmp_path):
    script(IN_STEPS)
    (tmp_path / "go").touch()
    async with serving("python") as server:
        client = await server.connect()
        body = str(tmp_path).encode()
        client.writer.write(
            b"POST /invocations HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        answer = await client.reader.read()
        assert re.fullmatch(rb"HTTP/1\.1 200 OK\r\n.*\r\n\r\nonetwo", answer, re.DOTALL)
        assert b"chunked" not in answer
