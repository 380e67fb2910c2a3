"""kill -9 of a model under load: known keys are answered all the time, from its offline results."""

import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.deploy import loads_when
from support.processes import children_with, container_pids
from support.server import eventually

CALLERS = 3
KEYS = 1000
V = "SAGEHEN_OFFLINE_RESULTS"
HEADER = "x-sagehen-offline-result"
BUILDER = "sagehen.app.roles.offline_results"


@dataclass
class Answers:
    """What callers got, by what it was: `live`, the first column of a stored answer, or an error's
    code."""

    seen: list[str] = field(default_factory=list)

    def has(self, what: str, since: int = 0) -> bool:
        return what in self.seen[since:]

    @property
    def kinds(self) -> set[str]:
        return set(self.seen)


class Fallback:
    """An endpoint whose model is loaded while a gate is open, and its offline results."""

    def __init__(self, deployer, gate: Path) -> None:
        self.deployer, self.server, self.gate = deployer, deployer.server, gate
        deployer.s3.create_bucket(Bucket="fallback")
        self.put("first")
        gate.touch()
        environment = {V: "s3://fallback/results/", f"{V}_KEY": "0"}
        described = deployer.endpoint("fallback", loads_when(gate, 2.0), environment)
        assert described["EndpointStatus"] == "InService", described

    def put(self, mark: str, keys: int = KEYS) -> None:
        """Results that begin with `mark`."""
        self.mark = mark
        rows = "".join(f"{key}.0,{mark},{key}\n" for key in range(keys))
        self.deployer.s3.put_object(Bucket="fallback", Key="results/out", Body=rows.encode())

    def refresh(self) -> None:
        url = f"{self.server.url}/_sagehen/offline-results/fallback/refresh"
        request = urllib.request.Request(url, method="POST", headers=self.server.bearer)
        urllib.request.urlopen(request, timeout=60).close()

    def ask(self, runtime, body: str) -> str:
        try:
            answer = runtime.invoke_endpoint(
                EndpointName="fallback", Body=body, ContentType="text/csv", Accept="text/csv"
            )
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        text = answer["Body"].read().decode()
        if HEADER not in answer["ResponseMetadata"]["HTTPHeaders"]:
            first, second = map(float, body.split(","))
            assert list(map(float, text.split())) == [2 * first, 2 * second]
            return "live"
        return str(text.partition(",")[0])

    @contextmanager
    def load(self, body: str = "1.0,2.0") -> Iterator[Answers]:
        """Callers who ask without a pause; fails if one could not go on."""
        answers, ending, broken = Answers(), threading.Event(), []

        def call() -> None:
            runtime = self.server.client("sagemaker-runtime")
            try:
                while not ending.is_set():
                    answers.seen.append(self.ask(runtime, body))
            except Exception as error:
                broken.append(error)
            finally:
                runtime.close()

        threads = [threading.Thread(target=call) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield answers
        finally:
            ending.set()
            for thread in threads:
                thread.join()
        assert not broken

    def kill_model(self) -> None:
        """Once it is the only container: those of files before may still be leaving."""
        found: list[int] = []

        def is_alone() -> bool:
            found[:] = container_pids(self.server.pid("agent"))
            return len(found) == 1

        eventually(is_alone)
        os.kill(found[0], signal.SIGKILL)

    def kill_agent(self) -> None:
        os.kill(self.server.pid("agent"), signal.SIGKILL)


@pytest.fixture(scope="module")
def fallback(two_gateways, module_gates) -> Iterator[Fallback]:
    fallback = Fallback(two_gateways, module_gates / "open")
    yield fallback
    fallback.gate.touch()
    fallback.deployer.sagemaker.delete_endpoint(EndpointName="fallback")


@pytest.fixture
def without_model(fallback) -> Iterator[Fallback]:
    """The model is dead, and is not loaded again before the test has ended."""
    fallback.gate.unlink()
    fallback.kill_model()
    yield fallback
    fallback.gate.touch()
    eventually(lambda: fallback.ask(fallback.deployer.runtime, "1.0,2.0") == "live")


def kill_and_load_again(fallback, kill, known: Answers, unknown: Answers) -> None:
    eventually(lambda: known.has("live") and unknown.seen)
    fallback.gate.unlink()
    before, before_unknown = len(known.seen), len(unknown.seen)
    kill(fallback)
    eventually(lambda: known.has(fallback.mark, before))
    eventually(lambda: unknown.has("ServiceUnavailable", before_unknown))
    dead = len(known.seen)
    fallback.gate.touch()
    eventually(lambda: known.has("live", dead))


@pytest.mark.parametrize("kill", [Fallback.kill_model, Fallback.kill_agent])
def test_a_model_that_is_killed_costs_no_known_key_an_error(
    fallback, kill: Callable[[Fallback], None]
) -> None:
    with fallback.load() as known, fallback.load("2000.0,2.0") as unknown:
        for _ in range(2):
            kill_and_load_again(fallback, kill, known, unknown)
    assert known.kinds == {"live", fallback.mark}
    assert unknown.kinds <= {"live", "ServiceUnavailable", "ModelError"}


def test_new_results_take_the_place_of_old_ones_under_load(without_model) -> None:
    with without_model.load() as answers:
        eventually(lambda: bool(answers.seen))
        old = without_model.mark
        without_model.put("second")
        without_model.refresh()
        eventually(lambda: answers.has("second"))
        # Each gateway reads the routes for itself.
        eventually(lambda: set(answers.seen[-10 * CALLERS :]) == {"second"})
    assert answers.kinds == {old, "second"}


def builder(fallback):
    found = children_with(BUILDER, fallback.server.process.pid)
    return found[0] if found else None


@pytest.mark.parametrize("victim", ["builder", "control"])
def test_a_build_that_is_killed_begins_again(without_model, victim: str) -> None:
    mark = f"after-{victim}"
    without_model.put(mark, keys=150_000)
    with without_model.load() as answers:
        eventually(lambda: answers.seen)
        old = answers.seen[0]
        without_model.refresh()
        found = []
        eventually(lambda: found.append(builder(without_model)) or found[-1])
        killed = found[-1]
        if victim == "builder":
            killed.kill()
        else:
            os.kill(without_model.server.pid("control"), signal.SIGKILL)
            eventually(lambda: not killed.is_running())
        eventually(lambda: answers.has(mark))
    assert answers.kinds == {old, mark}
    eventually(lambda: without_model.ask(without_model.deployer.runtime, "149999.0") == mark)
    folder = without_model.server.home / "offline-results"
    eventually(lambda: len(list(folder.iterdir())) == 1)


def test_results_answer_as_soon_as_a_restarted_server_does(without_model) -> None:
    server = without_model.server
    assert server.stop() == 0
    server.start()
    runtime = server.client("sagemaker-runtime")
    assert without_model.ask(runtime, "1.0,2.0") == without_model.mark
    assert without_model.ask(runtime, "-1.0,2.0") == "ServiceUnavailable"
    assert builder(without_model) is None
