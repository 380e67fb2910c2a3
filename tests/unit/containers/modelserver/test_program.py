"""The program as the agent runs it: a process of its own."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from sagehen.base.container_exits import WILL_NOT_LOAD


@pytest.fixture
def start(base_dir):
    async def started(adapter, **variables):
        environ = {
            "PATH": os.environ["PATH"],
            "SAGEMAKER_BASE_DIR": str(base_dir),
            "SAGEHEN_ADAPTER": adapter,
            "SAGEHEN_BIND": f"unix:{base_dir}/s.sock",
            **variables,
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sagehen.containers.modelserver",
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    return started


async def ended(process):
    """The exit status and the last line of the log."""
    _, log = await process.communicate()
    return process.returncode, log.decode().rstrip().splitlines()[-1]


async def healthy(reader, writer):
    answer = b""
    while b" 200 " not in answer:
        writer.write(b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        await reader.readexactly(int(length))


async def serving_line(process):
    while b"Loaded" not in (line := await process.stderr.readline()):
        assert line, "it ended"


async def test_it_serves_and_ends_on_sigterm_after_what_was_begun(start, put_script, base_dir):
    script = """
import sys, threading
def model_fn(d): return None
def transform_fn(model, data, content_type, accept):
    print("begun", file=sys.stderr, flush=True)
    threading.Event().wait(0.2)
    return "done"
"""
    put_script(inference=script)
    process = await start("python")
    await serving_line(process)
    reader, writer = await asyncio.open_unix_connection(f"{base_dir}/s.sock")
    await healthy(reader, writer)
    writer.write(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    assert await process.stderr.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    assert (await reader.read()).endswith(b"done")
    writer.close()
    await writer.wait_closed()
    assert (await ended_status(process)) == 0


async def test_no_worker_outlives_a_killed_server(start, put_script, base_dir):
    script = "import os\ndef model_fn(d): print('worker', os.getpid(), flush=True)\n"
    put_script(inference=script + "def predict_fn(data, model): pass\n")
    process = await start("python", SAGEMAKER_MODEL_SERVER_WORKERS="1")
    pid = int((await process.stdout.readline()).split()[1])
    await serving_line(process)
    os.kill(pid, signal.SIGSTOP)  # it cannot end by itself
    process.kill()
    await process.wait()
    async with asyncio.timeout(120):
        while runs(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert not runs(pid)


def runs(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


async def ended_status(process):
    await process.communicate()
    return process.returncode


@pytest.mark.parametrize(
    ("script", "reason", "status"),
    [
        (
            "import nothing\n",
            "ModuleNotFoundError: No module named 'nothing' (inference.py, line 1) (pack nothing "
            "beside the script, name its package in code/requirements.txt, or install it where "
            "Sagehen runs)",
            WILL_NOT_LOAD,
        ),
        (
            "def model_fn(d):\n    raise ValueError('bad\\nweights')\n",
            "ValueError: bad weights (inference.py, line 2)",
            WILL_NOT_LOAD,
        ),
        ("raise RuntimeError('odd')\n", "RuntimeError: odd (inference.py, line 1)", WILL_NOT_LOAD),
        ("raise OSError('away')\n", "OSError: away (inference.py, line 1)", 1),
        (
            "import sys\nsys.exit(2)\n",
            "RuntimeError: The model's code called sys.exit(2). (inference.py, line 2)",
            WILL_NOT_LOAD,
        ),
        ("def (\n", "SyntaxError: invalid syntax (inference.py, line 1)", WILL_NOT_LOAD),
    ],
)
async def test_a_model_that_does_not_load_ends_it_with_the_reason_last(
    start, put_script, script, reason, status
):
    """The status says whether another start may help."""
    put_script(inference=script)
    got, line = await ended(await start("python"))
    assert (got, line.partition("The model could not be loaded: ")[2]) == (status, reason)


@pytest.mark.parametrize(
    ("adapter", "variables", "last_line"),
    [
        ("cobol", {}, "SAGEHEN_ADAPTER is 'cobol'; it must be one of "),
        ("xgboost", {"SAGEHEN_BIND": "x"}, "SAGEHEN_BIND is 'x'; it must be unix:/path or tcp"),
        ("xgboost", {}, "The model's archive has no model file at its top level."),
        ("sklearn", {}, "Please provide a model_fn implementation: the model's archive has no"),
        ("python", {}, "The model's archive has no code/inference.py: put the script with"),
        ("xgboost", {"SAGEMAKER_PROGRAM": "go.py"}, "SAGEMAKER_PROGRAM names go.py, which is not"),
        ("xgboost", {"SAGEHEN_BIND": "unix:/no/where"}, "Cannot listen on /no/where: "),
    ],
)
async def test_what_cannot_start_says_why_on_the_last_line(start, adapter, variables, last_line):
    status, line = await ended(await start(adapter, **variables))
    assert status == (1 if "SAGEHEN_ADAPTER" in line or "SAGEHEN_BIND" in variables else 65)
    assert last_line in line


async def test_it_loads_neither_numpy_nor_the_frameworks_package_for_xgboost(
    start, base_dir, put_model, regressor
):
    put_model(base_dir / "model", regressor)
    process = await start("xgboost", PYTHONVERBOSE="1")
    log = b""
    while b"Loaded the model" not in log:
        chunk = await process.stderr.read(65536)
        assert chunk, f"the program ended before it had loaded the model: {log[-2000:]!r}"
        log += chunk
    process.terminate()
    assert await ended_status(process) == 0
    for package in (b"numpy", b"scipy", b"sklearn", b"xgboost.core", b"pydantic", b"sqlalchemy"):
        assert b"import '" + package + b"'" not in log
