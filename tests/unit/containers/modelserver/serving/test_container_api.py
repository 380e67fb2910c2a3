"""SageMaker's multi-model contract, over a real socket."""

import asyncio
import json
import os
from urllib.parse import quote

import pytest

from sagehen.containers.modelserver.serving import container_api as module
from sagehen.containers.modelserver.serving.container_api import PAGE_SIZE
from sagehen.containers.modelserver.serving.loading import HeapTrimmer
from support.frameworks import xgboost


@pytest.fixture
def put(base_dir, put_model, train):
    """Puts a model under the name the platform would give it; returns the body that loads it."""

    def under(name, seed=0, booster=None):
        folder = base_dir / "models" / name / "model"
        put_model(folder, booster or train(seed=seed))
        return json.dumps({"model_name": name, "url": str(folder)}).encode()

    return under


@pytest.fixture
def multi(serving):
    return lambda **variables: serving(SAGEMAKER_MULTI_MODEL="true", **variables)


def invoke(client, name, body):
    return client.request("POST", f"/models/{name}/invoke", body, content_type="text/csv")


async def test_load_invoke_describe_unload(multi, put, train, rows, as_csv, base_dir):
    async with multi() as server:
        client = await server.connect()
        assert (await client.request("GET", "/ping")).status == 200
        assert (await client.request("GET", "/models")).json() == {"models": []}
        for name, seed in (("a", 1), ("b", 2)):
            assert (await client.request("POST", "/models", put(name, seed))).status == 200
            reply = await invoke(client, name, as_csv(rows))
            assert reply.headers["content-type"] == "application/json"
            assert reply.json() == train(seed=seed).predict(xgboost.DMatrix(rows)).tolist()
        described = {"modelName": "a", "modelUrl": str(base_dir / "models" / "a" / "model")}
        assert (await client.request("GET", "/models/a")).json() == described
        assert (await client.request("DELETE", "/models/a")).status == 200
        assert (await invoke(client, "a", b"1,2,3,4")).status == 404
        assert (await client.request("GET", "/models/a")).status == 404
        assert (await client.request("DELETE", "/models/a")).status == 404
        assert (await invoke(client, "b", b"1,2,3,4")).status == 200


async def test_loading_twice_is_a_conflict_also_while_it_loads(multi, put):
    async with multi() as server:
        one, two = await server.connect(), await server.connect()
        body = put("a")
        replies = await asyncio.gather(
            one.request("POST", "/models", body), two.request("POST", "/models", body)
        )
        assert sorted(reply.status for reply in replies) == [200, 409]
        assert (await one.request("POST", "/models", body)).status == 409


async def test_the_list_comes_in_pages(multi, put, regressor):
    names = [f"m{number:03}" for number in range(PAGE_SIZE + 5)]
    async with multi() as server:
        client = await server.connect()
        for name in names:
            assert (await client.request("POST", "/models", put(name, 0, regressor))).status == 200
        first = (await client.request("GET", "/models")).json()
        token = first["nextPageToken"]
        second = (await client.request("GET", f"/models?next_page_token={token}")).json()
        listed = [model["modelName"] for model in first["models"] + second["models"]]
        assert listed == names
        assert "nextPageToken" not in second


ODD_NAMES = ["invoke", "..", "a b", "50%", "a?b&c=d#e+f", "größe", "x" * 1024, "models"]


async def test_a_name_may_be_any_text(multi, put, base_dir, monkeypatch):
    """Loaded, invoked, described, listed in pages, with the token as it was given, unloaded."""
    monkeypatch.setattr(module, "PAGE_SIZE", 3)
    url = json.loads(put("odd"))["url"]
    async with multi() as server:
        client = await server.connect()
        for name in ODD_NAMES:
            body = json.dumps({"model_name": name, "url": url}).encode()
            assert (await client.request("POST", "/models", body)).status == 200
            path = quote(name, safe="")
            assert (await client.request("POST", "/models", body)).status == 409
            assert (await invoke(client, path, b"1,2,3,4")).status == 200
            described = await client.request("GET", f"/models/{path}")
            assert described.json() == {"modelName": name, "modelUrl": url}
        listed, query = [], ""
        while True:
            page = (await client.request("GET", f"/models{query}")).json()
            listed += [model["modelName"] for model in page["models"]]
            if "nextPageToken" not in page:
                break
            query = f"?next_page_token={page['nextPageToken']}"
        assert listed == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            path = quote(name, safe="")
            assert (await client.request("DELETE", f"/models/{path}")).status == 200
            assert (await client.request("GET", f"/models/{path}")).status == 404


async def test_a_query_changes_nothing_but_the_page(multi, put):
    async with multi() as server:
        client = await server.connect()
        await client.request("POST", "/models?x=1", put("a"))
        reply = await client.request(
            "POST", "/models/a/invoke?x=1", b"1,2,3,4", content_type="text/csv"
        )
        assert reply.status == 200
        assert (await client.request("GET", "/models/a?x=1")).status == 200
        assert (await client.request("GET", "/ping?x=1")).status == 200
        assert (await client.request("GET", "/models?next_page_token=zz")).status == 400


async def test_the_page_goes_on_where_it_ended_though_that_model_has_gone(multi, put, monkeypatch):
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    async with multi() as server:
        client = await server.connect()
        for name in "abcd":
            await client.request("POST", "/models", put(name))
        token = (await client.request("GET", "/models")).json()["nextPageToken"]
        await client.request("DELETE", "/models/b")
        page = (await client.request("GET", f"/models?next_page_token={token}")).json()
        assert [model["modelName"] for model in page["models"]] == ["c", "d"]


async def test_a_prediction_without_memory_is_507(serving, put_script, base_dir):
    """On which the platform unloads others and tries again."""
    folder = base_dir / "models" / "hungry" / "model"
    put_script(
        folder,
        inference="def model_fn(d): pass\n"
        "def transform_fn(m, d, c, a): raise MemoryError('no room for it')\n",
    )
    body = json.dumps({"model_name": "hungry", "url": str(folder)}).encode()
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        client = await server.connect()
        assert (await client.request("POST", "/models", body)).status == 200
        reply = await invoke(client, "hungry", b"1")
        assert reply.status == 507
        assert "x-sagehen-by-model" not in reply.headers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model_name": "a"}',
        b'{"model_name": "", "url": "ROOT/models/a/model"}',
        b'{"model_name": "a/b", "url": "ROOT/models/a/model"}',
        b'{"model_name": "a", "url": "/etc"}',
        b'{"model_name": "a", "url": "ROOT/models/../model"}',
        b'{"model_name": 5, "url": "ROOT/models/a/model"}',
        b'{"model_name": "\\ud800", "url": "ROOT/models/a/model"}',
        b'{"model_name": "a", "url": "ROOT/models"}',
    ],
)
async def test_a_bad_order_to_load_is_400(multi, base_dir, body):
    async with multi() as server:
        client = await server.connect()
        body = body.replace(b"ROOT", str(base_dir).encode())
        assert (await client.request("POST", "/models", body)).status == 400


async def test_a_model_that_does_not_load_harms_no_other(multi, put, base_dir):
    broken = base_dir / "models" / "broken" / "model"
    broken.mkdir(parents=True)
    (broken / "xgboost-model").write_bytes(b"no model")
    body = json.dumps({"model_name": "broken", "url": str(broken)}).encode()
    async with multi() as server:
        client = await server.connect()
        await client.request("POST", "/models", put("good"))
        reply = await client.request("POST", "/models", body)
        assert reply.status == 500
        assert b"xgboost-model cannot be loaded" in reply.body
        assert (await invoke(client, "broken", b"1,2,3,4")).status == 404
        assert (await invoke(client, "good", b"1,2,3,4")).status == 200


async def test_a_model_too_big_for_the_memory_is_507(serving, put_script, base_dir):
    folder = base_dir / "models" / "big" / "model"
    put_script(folder, inference="def model_fn(d): raise MemoryError('no room')\n")
    body = json.dumps({"model_name": "big", "url": str(folder)}).encode()
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        reply = await (await server.connect()).request("POST", "/models", body)
        assert reply.status == 507
        assert "no room" in reply.json()["message"]


async def test_memory_is_asked_for_back_after_each_unloading(multi, put, regressor, monkeypatch):
    asked = []
    monkeypatch.setattr(HeapTrimmer, "request", lambda _: asked.append("trim"))
    async with multi() as server:
        client = await server.connect()
        await client.request("POST", "/models", put("a", 0, regressor))
        assert (await client.request("DELETE", "/models/a")).status == 200
    assert asked == ["trim"]


async def test_models_do_not_wait_for_one_another_but_unloading_for_what_was_begun(
    serving, put_script, base_dir
):
    pipe = base_dir / "pipe"
    os.mkfifo(pipe)
    script = """
def model_fn(d): return None
def transform_fn(model, data, content_type, accept):
    return open(data).read() if data else "at once"
"""
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        waiting, other, unloading = [await server.connect() for _ in range(3)]
        for name in ("slow", "quick"):
            folder = base_dir / "models" / name / "model"
            put_script(folder, inference=script)
            body = json.dumps({"model_name": name, "url": str(folder)}).encode()
            assert (await other.request("POST", "/models", body)).status == 200
        waiting.send("POST", "/models/slow/invoke", str(pipe).encode())
        write = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)  # so it is being read
        assert (await other.request("POST", "/models/quick/invoke")).body == b"at once"
        unloading.send("DELETE", "/models/slow")
        os.write(write, b"in the end")
        os.close(write)
        assert (await waiting.reply()).body == b"in the end"
        assert (await unloading.reply()).status == 200


async def test_other_paths_and_methods(multi):
    async with multi() as server:
        client = await server.connect()
        assert (await client.request("POST", "/invocations")).status == 404
        assert (await client.request("PUT", "/models")).status == 405
        assert (await client.request("PUT", "/models/a")).status == 405


async def test_models_of_scripts_with_the_same_names_do_not_mix(serving, put_script, base_dir):
    script = """
import helper
def model_fn(d): return helper.NAME
def transform_fn(model, data, content_type, accept):
    import late
    from helper import NAME
    return f"{model} {NAME} {late.NAME}"
"""
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        client = await server.connect()
        for name in ("a", "b"):
            folder = base_dir / "models" / name / "model"
            put_script(
                folder, inference=script, helper=f"NAME = {name!r}", late=f"NAME = 'late {name}'"
            )
            body = json.dumps({"model_name": name, "url": str(folder)}).encode()
            assert (await client.request("POST", "/models", body)).status == 200
        for name in ("a", "b", "a"):
            reply = await invoke(client, name, b"x")
            assert reply.body.decode() == f"{name} {name} late {name}"
