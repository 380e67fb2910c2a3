"""What the user's code can do to its worker process, and what the others notice of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sagehen.containers.modelserver.serving import container_api as multi
from sagehen.containers.modelserver.workers import process
from support.wheels import make_wheel

SCRIPT = """
import ctypes, os, resource, subprocess, sys, time

def model_fn(model_dir):
    return os.getpid()

def transform_fn(pid, data, content_type, accept):
    what, _, argument = data.decode().partition(" ")
    return globals()[what](argument)

def pid(_):
    return str(os.getpid())

def leave(status):
    os._exit(int(status))

def segfault(_):
    ctypes.string_at(0)

def kill_itself(_):
    os.kill(os.getpid(), 9)

def system_exit(_):
    sys.exit(4)

def never_return(_):
    while True:
        time.sleep(60)

def hold_the_interpreter(pipe):
    # Waits in C for somebody to open the other end, and lets no other thread of the process run.
    return str(ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY))

def run_out_of_memory(_):
    own = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + 2**26, own + 2**26))
    held = []
    while True:
        held.append(bytearray(2**22))

def leave_children(_):
    program = "import os, time; os.fork(); os.setsid() if os.fork() else None; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", program])
    if (forked := os.fork()) == 0:
        time.sleep(600)
    return f"{child.pid} {forked}"

def come_back_from_a_fork(_):
    return "parent" if os.fork() else "child"

def scribble(_):
    # Which number the server's socket has depends on how many the tests' process has open.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if descriptor > 2:
                os.write(descriptor, b"x" * 64)
        except OSError:
            pass
    return "scribbled"

def bad_header(_):
    return "x", "text/\\udcff"
"""


@pytest.fixture
def code(serving, put_script):
    """`code(**variables)`: a server with the script above."""
    put_script(inference=SCRIPT)
    return lambda **variables: serving("python", **variables)


async def ask(server, what):
    client = await server.connect()
    return await client.request("POST", "/invocations", what.encode(), content_type="a/b")


def is_there(pid):
    """It runs: one that has ended may wait long for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def ended(*pids):
    """What is killed may live on for a moment, until the kernel has it run for the last time."""
    async with asyncio.timeout(120):
        while any(map(is_there, pids)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("leave 3", "ended with exit status 3"),
        ("segfault", "was ended by SIGSEGV (Segmentation fault)"),
        ("kill_itself", "was ended by SIGKILL (Killed; maybe for want of memory)"),
        ("never_return", "did not answer within 2 seconds"),
        ("scribble", "wrote what is no message to the server"),
    ],
)
async def test_a_worker_that_dies_is_said_and_replaced(code, what, how, capfd):
    seconds = "2" if what == "never_return" else "60"
    async with code(SAGEMAKER_MODEL_SERVER_TIMEOUT=seconds) as server:
        before = await ask(server, "pid")
        dying = asyncio.create_task(ask(server, what))
        waiting = asyncio.create_task(ask(server, "pid"))
        answer = await dying
        assert answer.status == 500
        assert how in answer.json()["message"]
        # What waited goes on, in another process.
        after = await waiting
        assert after.status == 200
        assert after.body != before.body
        assert (await (await server.connect()).request("GET", "/ping")).status == 200
    log = capfd.readouterr().err
    if what in ("never_return", "segfault"):
        assert f"in {what}" in log  # where it was


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("system_exit", 500, b"SystemExit: 4"),
        ("run_out_of_memory", 507, b"Out of memory"),
        ("bad_header", 500, b"surrogates not allowed"),
    ],
)
async def test_what_is_raised_leaves_the_worker_alive(code, what, status, said):
    async with code() as server:
        before = await ask(server, "pid")
        answer = await ask(server, what)
        assert (answer.status, said in answer.body) == (status, True)
        assert (await ask(server, "pid")).body == before.body


async def test_ping_is_answered_while_the_code_holds_the_interpreter(code, base_dir):
    pipe = base_dir / "pipe"
    os.mkfifo(pipe)
    async with code() as server:
        held = asyncio.create_task(ask(server, f"hold_the_interpreter {pipe}"))
        assert (await (await server.connect()).request("GET", "/ping")).status == 200
        assert not held.done()
        os.close(await asyncio.to_thread(os.open, pipe, os.O_WRONLY))
        assert (await held).status == 200


async def test_nothing_of_a_worker_outlives_it(code):
    async with code() as server:
        worker = (await ask(server, "pid")).body.decode()
        left = (await ask(server, "leave_children")).body.decode().split()
        assert all(is_there(pid) for pid in [worker, *left])
        assert (await ask(server, "leave 0")).status == 500
        after = (await ask(server, "pid")).body.decode()
        await ended(worker, *left)
    await ended(after)


async def test_a_forked_child_cannot_answer(code):
    async with code() as server:
        assert (await ask(server, "come_back_from_a_fork")).body == b"parent"
        assert (await ask(server, "pid")).status == 200


async def test_workers_are_processes_that_work_at_once(code, base_dir):
    pipe = base_dir / "pipe"
    os.mkfifo(pipe)
    async with code(SAGEMAKER_MODEL_SERVER_WORKERS="2") as server:
        held = asyncio.create_task(ask(server, f"hold_the_interpreter {pipe}"))
        free = {(await ask(server, "pid")).body for _ in range(5)}
        assert len(free) == 1
        os.close(await asyncio.to_thread(os.open, pipe, os.O_WRONLY))
        assert (await held).status == 200


async def test_large_bodies_go_through_whole(code, put_script):
    put_script(inference="def model_fn(d): pass\ndef transform_fn(m, d, c, a): return d[::-1]\n")
    body = os.urandom(9_000_000)
    async with code() as server:
        clients = [await server.connect() for _ in range(3)]
        replies = await asyncio.gather(
            *(client.invoke(body, "application/octet-stream") for client in clients)
        )
        assert all(reply.body == body[::-1] for reply in replies)


async def test_workers_that_keep_dying_make_ping_fail(code, monkeypatch):
    monkeypatch.setattr("sagehen.containers.modelserver.workers.pool.FIRST_DELAY_SECONDS", 0.0)
    async with code() as server:
        client = await server.connect()
        for _ in range(5):
            assert (await client.request("GET", "/ping")).status == 200
            assert (await ask(server, "leave 1")).status == 500
        assert (await client.request("GET", "/ping")).status == 503
        # An answered call tells that it works after all.
        assert (await ask(server, "pid")).status == 200
        assert (await client.request("GET", "/ping")).status == 200


async def test_the_models_of_a_dead_worker_are_not_loaded(serving, put_script, base_dir):
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        client = await server.connect()

        async def call(name, what):
            return await client.request("POST", f"/models/{name}/invoke", what.encode())

        orders = {}
        for name in ("a", "b"):
            folder = base_dir / "models" / name / "model"
            put_script(folder, inference=SCRIPT)
            orders[name] = json.dumps({"model_name": name, "url": str(folder)}).encode()
            assert (await client.request("POST", "/models", orders[name])).status == 200
        assert (await call("a", "pid")).body == (await call("b", "pid")).body
        answer = await call("a", "leave 1")
        assert (answer.status, b"exit status 1" in answer.body) == (500, True)
        assert (await call("a", "pid")).status == 404
        assert (await client.request("GET", "/models")).json() == {"models": []}
        for name in ("a", "b"):
            assert (await client.request("POST", "/models", orders[name])).status == 200
            assert (await call(name, "pid")).status == 200
            assert (await client.request("DELETE", f"/models/{name}")).status == 200


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import os; os._exit(3)", b"ended with exit status 3 while it loaded"),
        ("import os, time; os.kill(os.getpid(), 11); time.sleep(9)", b"SIGSEGV"),
        ("raise ValueError('no weights')", b"no weights\nTraceback (most recent call last):"),
    ],
)
async def test_a_load_that_fails_says_how(serving, put_script, base_dir, line, said):
    folder = base_dir / "models" / "bad" / "model"
    put_script(folder, inference=line)
    order = json.dumps({"model_name": "bad", "url": str(folder)}).encode()
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server:
        client = await server.connect()
        answer = await client.request("POST", "/models", order)
        assert (answer.status, said in answer.body) == (500, True)


@pytest.mark.parametrize(
    ("variables", "threads"),
    [({}, str(max(1, len(os.sched_getaffinity(0)) // 2))), ({"OMP_NUM_THREADS": "7"}, "7")],
)
async def test_threads_are_shared_out_unless_the_user_says(
    serving, put_script, variables, threads, monkeypatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = "import os\ndef model_fn(d): pass\ndef transform_fn(m, d, c, a): "
    put_script(inference=script + "return os.environ['OMP_NUM_THREADS']\n")
    async with serving("python", SAGEMAKER_MODEL_SERVER_WORKERS="2", **variables) as server:
        assert (await ask(server, "x")).body.decode() == threads


async def test_the_log_level_is_the_codes_too(serving, put_script, capfd):
    said = "import logging\nlogging.getLogger('mine').debug('fine print')\n"
    put_script(inference=said + SCRIPT)
    async with serving("python", SAGEMAKER_CONTAINER_LOG_LEVEL="DEBUG") as server:
        assert (await ask(server, "pid")).status == 200
    assert " DEBUG mine: fine print\n" in capfd.readouterr().err


async def test_models_with_different_requirements_live_side_by_side(
    serving, put_script, base_dir, tmp_path
):
    script = """
import os, shade
def model_fn(d): pass
def transform_fn(m, d, c, a): return f"{shade.VERSION} {os.getpid()}"
"""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    async with serving("python", SAGEMAKER_MULTI_MODEL="true", **offline) as server:
        client = await server.connect()

        async def load(name, requirements):
            folder = base_dir / "models" / name / "model"
            put_script(folder, inference=script)
            (folder / "code" / "requirements.txt").write_text(requirements)
            order = json.dumps({"model_name": name, "url": str(folder)}).encode()
            return await client.request("POST", "/models", order)

        said = {}
        for version in ("1.0", "2.0"):
            make_wheel(tmp_path, "shade", version)
            assert (await load(f"m{version}", f"shade=={version}\n")).status == 200
            reply = await client.request("POST", f"/models/m{version}/invoke", b"")
            said[version], pid = reply.body.decode().split()
        assert said == {"1.0": "1.0", "2.0": "2.0"}
        refused = await load("bad", "shade==3.0\n")
        assert refused.status == 500
        assert refused.body.endswith(b"ERROR: No matching distribution found for shade==3.0")
        assert (await client.request("DELETE", "/models/m2.0")).status == 200
        await ended(pid)  # the last model of its environment
        assert (await client.request("POST", "/models/m1.0/invoke", b"")).status == 200


class Sweep:
    """The clearing away of what a worker has left: told when it begins, ends when it is let."""

    def __init__(self):
        self.begun, self.let = threading.Event(), threading.Event()

    def __call__(self, mark):
        self.begun.set()
        assert self.let.wait(120)


@pytest.fixture
def sweep(monkeypatch):
    sweep = Sweep()
    monkeypatch.setattr(process, "end_leftovers", sweep)
    yield sweep
    sweep.let.set()


async def kill_worker(sweep, pid):
    os.kill(int(pid), signal.SIGKILL)
    assert await asyncio.to_thread(sweep.begun.wait, 120)


async def test_what_comes_just_after_a_workers_end_was_not_begun_by_it(code, sweep):
    async with code() as server:
        before = (await ask(server, "pid")).body
        await kill_worker(sweep, before)
        late = asyncio.create_task(ask(server, "pid"))
        # A whole exchange: by now the other has been read too.
        assert (await (await server.connect()).request("GET", "/ping")).status == 200
        sweep.let.set()
        after = await late
        assert (after.status, after.body != before) == (200, True)


class Models:
    """A multi-model server's, each of a script."""

    def __init__(self, server, put_script, base_dir):
        self.server, self.put_script, self.base_dir = server, put_script, base_dir

    async def ask(self, method, path, body=b""):
        return await (await self.server.connect()).request(method, path, body)

    async def load(self, name, script=SCRIPT):
        folder = self.base_dir / "models" / name / "model"
        self.put_script(folder, inference=script)
        order = json.dumps({"model_name": name, "url": str(folder)}).encode()
        return await self.ask("POST", "/models", order)


async def test_a_model_asked_for_just_after_a_workers_end_is_loaded_in_the_next(
    serving, put_script, base_dir, sweep
):
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server, asyncio.timeout(120):
        models = Models(server, put_script, base_dir)
        assert (await models.load("a")).status == 200
        before = (await models.ask("POST", "/models/a/invoke", b"pid")).body
        await kill_worker(sweep, before)
        loading = asyncio.create_task(models.load("b"))
        unloading = asyncio.create_task(models.ask("DELETE", "/models/a"))
        assert (await models.ask("GET", "/ping")).status == 200
        sweep.let.set()
        assert (await loading).status == 200
        assert (await unloading).status in (200, 404)
        assert (await models.ask("POST", "/models/b/invoke", b"pid")).body != before


async def test_a_load_that_never_ends_is_given_up_and_others_are_loaded(
    serving, put_script, base_dir, monkeypatch
):
    monkeypatch.setattr(multi, "GIVE_UP_SECONDS", 0.05)
    begun = base_dir / "begun"
    os.mkfifo(begun)
    hanging = f"""
import time
def model_fn(d):
    open({str(begun)!r}, "w").close()
    while True:
        time.sleep(60)
"""
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server, asyncio.timeout(120):
        models = Models(server, put_script, base_dir)
        loading = asyncio.create_task(models.load("hanging", hanging))
        await asyncio.to_thread(begun.read_bytes)
        assert (await models.ask("DELETE", "/models/hanging")).status == 404
        answer = await loading
        assert answer.status == 500
        assert b"was ended: a model was not loaded in time" in answer.body
        assert (await models.load("good")).status == 200
        assert (await models.ask("POST", "/models/good/invoke", b"pid")).status == 200


async def test_a_load_that_another_models_crash_has_ended_is_made_again(
    serving, put_script, base_dir
):
    begun = base_dir / "begun"
    os.mkfifo(begun)
    waiting = f"""
def model_fn(d):
    open({str(begun)!r}, "w").close()
    open(d + "/gate").close()
def predict_fn(data, model): pass
"""
    async with serving("python", SAGEMAKER_MULTI_MODEL="true") as server, asyncio.timeout(120):
        models = Models(server, put_script, base_dir)
        assert (await models.load("crashing")).status == 200
        gate = base_dir / "models" / "innocent" / "model" / "gate"
        gate.parent.mkdir(parents=True)
        os.mkfifo(gate)
        loading = asyncio.create_task(models.load("innocent", waiting))
        await asyncio.to_thread(begun.read_bytes)
        assert (await models.ask("POST", "/models/crashing/invoke", b"leave 1")).status == 500
        await asyncio.to_thread(begun.read_bytes)
        await asyncio.to_thread(gate.write_bytes, b"")
        assert (await loading).status == 200


def test_a_worker_waits_for_nothing_that_only_the_server_needs():
    program = """
import sys
import sagehen.containers.modelserver.worker, sagehen.containers.modelserver.adapters.script.script
from sagehen.containers.modelserver.workers import serving
sys.exit(", ".join({"asyncio", "shutil", "ssl", "tempfile", "zipfile"} & sys.modules.keys()) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
