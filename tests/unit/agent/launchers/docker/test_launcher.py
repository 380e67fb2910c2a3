"""The docker launcher against an engine in memory."""

import asyncio
import sys

import pytest

from sagehen.agent.errors import CannotStart
from sagehen.agent.launchers.docker.launcher import THREADS
from sagehen.agent.launchers.docker.leftovers import AGENT_LABEL, HOME_LABEL, PATH_LABEL

MULTI_MODEL = "com.amazonaws.sagemaker.capabilities.multi-models"


async def test_a_container_runs_logs_and_ends(engine, make_launcher, plan, until) -> None:
    process = await make_launcher().start(plan)
    assert process.address == "tcp:172.30.0.2:8080"
    assert engine.only.request["Cmd"] == ["serve"]
    assert engine.only.request["Env"] == ["A=b"]
    engine.only.write(b"to stdout\n", 1)
    engine.only.write(b"to stderr\n", 2)
    await until(lambda: process.last_lines() == ["to stdout", "to stderr"])
    assert await process.memory_bytes() == 5_100
    assert await process.cpu_seconds() == 2.5
    engine.only.end(3)
    assert await process.wait() == 3
    assert process.ended_because is None
    assert plan.log.read_text() == "to stdout\nto stderr\n"
    assert engine.containers == {}
    assert await process.memory_bytes() == 0


async def test_signals_and_statuses(engine, make_launcher, plan, until) -> None:
    process = await make_launcher().start(plan)
    container = engine.only
    container.stubborn = True
    process.terminate()
    await until(lambda: container.signals)
    process.kill()
    assert await process.wait() == -9
    assert container.signals == ["SIGTERM", "SIGKILL"]
    process.kill()  # nothing happens


async def test_out_of_memory_is_named(engine, make_launcher, plan) -> None:
    process = await make_launcher().start(plan)
    engine.only.end(137, out_of_memory=True)
    assert await process.wait() == -9
    message = "it was ended because it passed the 256 MiB of memory of its instance"
    assert process.ended_because == message
    assert f"sagehen: {message}.\n" in plan.log.read_text()
    assert process.hits()["memory"] == 1


async def test_an_image_is_pulled_once_for_all(engine, make_launcher, plan, change, until) -> None:
    del engine.images["mine:1"]
    engine.registry["registry.local:5000/mine:1"] = {"Config": {}}
    engine.pull_gate = asyncio.Event()
    launcher = make_launcher(docker_registries={"*.dkr.ecr.*.amazonaws.com": "registry.local:5000"})
    ecr = change(uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1")
    starts = [asyncio.create_task(launcher.start(ecr)) for _ in range(3)]
    await until(lambda: engine.pulls)
    engine.pull_gate.set()
    await asyncio.gather(*starts)
    assert engine.pulls == ["registry.local:5000/mine:1"]
    assert len(engine.containers) == 3


async def test_a_pull_that_fails_says_why(engine, make_launcher, change) -> None:
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/absent:1"
    with pytest.raises(CannotStart, match="manifest unknown") as failure:
        await make_launcher().start(change(uri=uri))
    assert "aws ecr get-login-password --region us-east-1" in str(failure.value)
    assert engine.containers == {}


async def test_pulls_that_hang_hold_up_no_other_container(
    engine, make_launcher, plan, change, until
) -> None:
    engine.pull_gate = asyncio.Event()
    launcher = make_launcher(docker_pull_timeout_seconds=600)
    hanging = [
        asyncio.create_task(launcher.start(change(uri=f"hangs-{number}:1")))
        for number in range(2 * THREADS)
    ]
    await until(lambda: len(engine.pulls) == 2 * THREADS)
    await launcher.start(plan)
    assert engine.only.request["Image"] == "mine:1"
    engine.pull_gate.set()
    failures = await asyncio.gather(*hanging, return_exceptions=True)
    assert all("manifest unknown" in str(failure) for failure in failures)


async def test_a_pull_takes_no_longer_than_the_setting(engine, make_launcher, change) -> None:
    engine.pull_gate = asyncio.Event()
    launcher = make_launcher(docker_pull_timeout_seconds=0.1)
    with pytest.raises(CannotStart, match=r"longer than 0\.1 s \(docker_pull_timeout_seconds\)"):
        await launcher.start(change(uri="hangs:1"))


async def test_a_registry_that_says_nothing_is_given_up(
    engine, make_launcher, change, monkeypatch
) -> None:
    engine.pull_gate = asyncio.Event()
    monkeypatch.setattr("sagehen.agent.launchers.docker.engine.PULL_SILENCE_SECONDS", 0.1)
    with pytest.raises(CannotStart, match=r"nothing came from the registry for 0\.1 s"):
        await make_launcher().start(change(uri="hangs:1"))


async def test_a_multi_model_image_needs_its_label(engine, make_launcher, change) -> None:
    launcher = make_launcher()
    with pytest.raises(CannotStart, match=f"does not contain required {MULTI_MODEL}=true"):
        await launcher.start(change(multi_model=True))
    engine.add_image("mine:1", {MULTI_MODEL: "true"})
    await launcher.start(change(multi_model=True))


async def test_a_container_that_does_not_start_is_removed(engine, make_launcher, plan) -> None:
    engine.start_error = 'exec: "serve": executable file not found in $PATH: unknown'
    with pytest.raises(CannotStart, match='exec: "serve": executable file not found'):
        await make_launcher().start(plan)
    assert engine.containers == {}


async def test_a_start_that_is_cancelled_leaves_nothing(engine, make_launcher, plan, until) -> None:
    launcher = make_launcher()
    await launcher.problems()  # connects
    starting = asyncio.create_task(launcher.start(plan))
    await until(lambda: engine.containers)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: not engine.containers)


async def test_a_new_agent_removes_what_is_its_homes_alone(engine, make_launcher, plan) -> None:
    first = make_launcher()
    await first.start(plan)
    left = engine.only
    labels = left.request["Labels"]
    others = [
        engine.add_container("a", {}),
        engine.add_container("b", {**labels, HOME_LABEL: "another"}),
        engine.add_container("c", {**labels, PATH_LABEL: "/another"}),
        engine.add_container("d", {HOME_LABEL: labels[HOME_LABEL], PATH_LABEL: labels[PATH_LABEL]}),
    ]
    second = make_launcher()
    await second.clear()
    assert set(engine.containers) == {container.id for container in others}
    await second.start(plan)
    (mine,) = (one for one in engine.containers.values() if one not in others)
    assert mine.request["Labels"][AGENT_LABEL] != labels[AGENT_LABEL]
    await second.clear()
    assert mine.id in engine.containers


async def test_a_jobs_network_goes_with_its_last_host(
    engine, make_launcher, plan, change, until
) -> None:
    launcher = make_launcher()
    hosts = [
        await launcher.start(change(serves=False, peers="job-1", hostname=name, containers=2))
        for name in ("algo-1", "algo-2")
    ]
    assert list(engine.networks) == ["sagehen-job-1"]
    for process in hosts:
        assert "sagehen-job-1" in engine.networks
        process.kill()
        await process.wait()
    await until(lambda: not engine.networks)


async def test_a_container_without_a_network_is_refused_where_it_cannot_be_reached(
    engine, make_launcher, change, monkeypatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    launcher = make_launcher()
    with pytest.raises(
        CannotStart, match="EnableNetworkIsolation needs a server that runs as root"
    ):
        await launcher.start(change(isolated=True))
    with pytest.raises(CannotStart, match="with more than one instance"):
        await launcher.start(change(isolated=True, serves=False, containers=2))
    job = await launcher.start(change(isolated=True, serves=False))
    assert job.address is None
    assert engine.only.request["HostConfig"]["NetworkMode"] == "none"
    assert "NetworkingConfig" not in engine.only.request


async def test_an_image_with_a_user_may_use_its_folders(engine, make_launcher, plan) -> None:
    engine.add_image("mine:1", user="1000:1000")
    folder, file = plan.base / "model", plan.base / "model" / "weights"
    file.write_text("1")
    file.chmod(0o600)
    folder.chmod(0o700)
    await make_launcher().start(plan)
    assert folder.stat().st_mode & 0o777 == 0o777
    assert file.stat().st_mode & 0o777 == 0o666


async def test_the_server_is_reached_where_its_network_is(
    engine, make_launcher, plan, change
) -> None:
    url = "http://127.0.0.1:9"
    job = change(serves=False, server_url=url)
    job.environment["AWS_ENDPOINT_URL"] = url
    launcher = make_launcher(host="0.0.0.0")
    await launcher.start(job)
    assert "AWS_ENDPOINT_URL=http://127.0.0.1:9" in engine.only.request["Env"]
    job.environment["AWS_ENDPOINT_URL"] = "http://of.the.user"
    await launcher.start(job)
    assert (
        "AWS_ENDPOINT_URL=http://of.the.user" in list(engine.containers.values())[1].request["Env"]
    )


async def test_an_engine_that_is_away_is_a_problem_with_its_remedy(make_launcher, plan) -> None:
    pytest.importorskip("docker", reason="the docker extra is not installed")
    launcher = make_launcher()
    await launcher.clear()  # only logs
    with pytest.raises(CannotStart, match=r"does not answer \(No such file or directory\)"):
        await launcher.start(plan)
    (problem,) = await launcher.problems()
    assert problem.startswith("No image can be run: the Docker Engine at unix://")
    assert "start it" in problem


async def test_an_engine_on_another_machine_is_refused(make_launcher, plan, monkeypatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(CannotStart, match=r"tcp://10\.0\.0\.1:2375 may be on another machine"):
        await make_launcher(docker_host=None).start(plan)


async def test_a_missing_library_is_named(make_launcher, plan, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CannotStart, match=r"pip install 'docker>=7\.1'"):
        await make_launcher().start(plan)


async def test_an_engine_that_comes_back_is_used(make_launcher, plan, short_path) -> None:
    pytest.importorskip("docker", reason="the docker extra is not installed")
    from support.docker.fake_engine import serving_engine

    launcher = make_launcher()
    assert await launcher.problems()
    async with serving_engine(short_path) as engine:
        engine.add_image("mine:1")
        assert await launcher.problems() == []
        process = await launcher.start(plan)
        process.kill()
        await process.wait()
        await launcher.close()
