"""A runner process as control drives it: real processes that speak the protocol, or do not."""

import asyncio
import sys

import pytest

from sagehen.services.sagemaker.transform.job_records import TransformProgress
from sagehen.services.sagemaker.transform.reconciler.runner_process import RunnerProcess
from sagehen.services.sagemaker.transform.runner_messages import (
    InstanceAddress,
    RunnerEnded,
    RunnerLog,
)
from sagehen.services.sagemaker.transform.runner_spec import make_runner_spec
from support.transform_jobs import S3, active_transform

ECHO = """
import json, sys

def say(line):
    log = {"type": "data_log", "instance_id": None, "line": line}
    print(json.dumps(log), flush=True)

spec = json.loads(sys.stdin.readline())
say("spec " + spec["job_name"])
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "stop":
        print(json.dumps({"type": "ended"}), flush=True)
        break
    say(" ".join(each["address"] for each in message["instances"]))
"""
GARBLED = (
    "import sys, time; sys.stdin.readline(); print('no message', flush=True); time.sleep(1000)"
)
LONG = """
import json, sys
sys.stdin.readline()
keys = ["k" * 1000] * 3000
print(json.dumps({"type": "done", "keys": keys, "records": 1, "input_bytes": 1}), flush=True)
"""


class Runner:
    """A process of this program, and what it has said."""

    def __init__(self):
        self._changed = asyncio.Event()
        self.process = RunnerProcess(self._changed.set)

    async def start(self, program):
        spec = make_runner_spec(active_transform(), TransformProgress(job_id="idjob"), S3, {})
        await self.process.start([sys.executable, "-c", program])
        self.process.begin(spec)

    async def until(self, condition):
        async with asyncio.timeout(120):
            while not condition():
                await self._changed.wait()
                self._changed.clear()

    @property
    def lines(self):
        messages = self.process.messages
        return [message.line for message in messages if isinstance(message, RunnerLog)]


@pytest.fixture
async def runner():
    made = Runner()
    yield made
    await made.process.kill()


async def test_it_hears_its_job_the_instances_and_when_to_stop(runner):
    await runner.start(ECHO)
    first = InstanceAddress(instance_id="i-1", address="link:/1")
    runner.process.set_instances((first,))
    runner.process.set_instances((first,))  # no news
    runner.process.set_instances(())
    runner.process.stop()
    runner.process.stop()
    await runner.until(lambda: runner.process.has_exited)
    assert runner.lines == ["spec job", "link:/1", ""]
    assert runner.process.messages[-1] == RunnerEnded()


async def test_one_that_ends_is_noticed_and_hears_nothing_more(runner):
    await runner.start("pass")
    await runner.until(lambda: runner.process.has_exited)
    runner.process.set_instances((InstanceAddress(instance_id="i", address="a"),))
    runner.process.stop()
    assert runner.process.messages == []


async def test_one_that_sends_no_messages_is_killed(runner):
    await runner.start(GARBLED)
    await runner.until(lambda: runner.process.has_exited)
    assert runner.process.messages == []


async def test_a_message_may_name_many_keys(runner):
    await runner.start(LONG)
    await runner.until(lambda: runner.process.has_exited)
    (message,) = runner.process.messages
    assert len(message.keys) == 3000


async def test_kill_returns_once_it_has_ended(runner):
    await runner.start(ECHO)
    await runner.process.kill()
    assert runner.process.has_exited
    await runner.process.kill()


async def test_a_program_that_is_not_there(runner):
    with pytest.raises(OSError, match="no-such-program"):
        await runner.process.start(["/no-such-program"])
