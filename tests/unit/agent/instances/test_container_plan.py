import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.agent.instances.container_plan import (
    ContainerPaths,
    PortRange,
    choose_address,
    plan_launch,
)
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.images import Launch

PORTS = PortRange(15_000, 15_049)
MakeSpec = Callable[..., InstanceSpec]
MODE = {"SAGEMAKER_MULTI_MODEL": "true"}
"""What only the model's Mode says."""


def test_the_model_server_listens_on_a_socket_of_its_own(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    paths = ContainerPaths(home, make_spec(environment={"MINE": "1", **MODE}), 1)
    launch = Launch(adapter="xgboost")
    address = choose_address(paths, launch, PORTS)
    plan = plan_launch(paths, launch, address, PORTS, settings)
    assert address == f"unix:{home.run}/i-1/http.sock"
    assert plan.command == (sys.executable, "-m", "sagehen.containers.modelserver")
    assert plan.environment["SAGEHEN_ADAPTER"] == "xgboost"
    assert plan.environment["SAGEHEN_BIND"] == address
    assert plan.environment["SAGEMAKER_BASE_DIR"] == f"{home.instances}/i-1/primary/ml"
    assert plan.environment["MINE"] == "1"
    assert plan.environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert "SAGEMAKER_MULTI_MODEL" not in plan.environment
    assert plan.environment["SAGEHEN_ENVIRONMENTS"] == str(home.environments)
    assert plan.environment["SAGEHEN_ENVIRONMENTS_BYTES"] == str(settings.environment_cache_bytes)
    assert plan.environment["SAGEMAKER_STARTUP_TIMEOUT"] == "55"  # less than it has
    assert "OMP_NUM_THREADS" not in plan.environment  # it knows itself how many
    assert plan.log == home.logs / "endpoints/houses/AllTraffic/i-1/primary.log"
    assert plan.base == paths.base


def test_a_container_sees_its_own_part_of_the_home_only(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    paths = ContainerPaths(home, make_spec(), 1)
    launch = Launch(adapter="xgboost")
    plan = plan_launch(paths, launch, f"unix:{paths.socket}", PORTS, settings)
    assert {home.credentials, home.run, home.artifacts, home.instances} <= set(plan.view.hidden)
    assert {paths.socket.parent, paths.folder, home.environments} <= set(plan.view.shown)
    assert not {home.run, home.artifacts, home.instances} & set(plan.view.shown)


@pytest.mark.parametrize(("file", "hidden"), [("own.toml", True), ("logs/own.toml", False)])
def test_a_file_of_settings_beside_the_keys_is_hidden_whatever_it_is_called(
    home: Home, settings: Settings, make_spec: MakeSpec, file: str, hidden: bool
) -> None:
    paths = ContainerPaths(home, make_spec(network_isolation=True), 1)
    settings = settings.model_copy(update={"config": home.path / file})
    plan = plan_launch(paths, Launch(command=("serve",)), "tcp:127.0.0.1:1", PORTS, settings)
    assert (home.path / file in plan.view.hidden) is hidden
    assert {path.parent for path in plan.view.hidden} == {home.path}


def test_a_command_of_ones_own_listens_on_a_port_of_its_own(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    paths = ContainerPaths(home, make_spec(), 1)
    launch = Launch(command=("python3", "serve.py"))
    address = choose_address(paths, launch, PORTS)
    plan = plan_launch(paths, launch, address, PORTS, settings)
    assert address == "tcp:127.0.0.1:15000"
    assert plan.environment["SAGEMAKER_BIND_TO_PORT"] == "15000"
    assert plan.environment["SAGEMAKER_SAFE_PORT_RANGE"] == "15001-15048"
    assert plan.command == ("python3", "serve.py")
    assert plan.folder == home.path


def test_pip_is_used_as_the_user_does_unless_the_container_says(
    home: Home, settings: Settings, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mine/")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    paths = ContainerPaths(home, make_spec(environment={"PIP_NO_INDEX": "0"}), 1)
    plan = plan_launch(paths, Launch(adapter="python"), "unix:/run/i-1.sock", PORTS, settings)
    assert plan.environment["PIP_INDEX_URL"] == "https://mine/"
    assert plan.environment["PIP_NO_INDEX"] == "0"


CODE = {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/code.tar.gz"}


@pytest.mark.parametrize(
    ("launch", "directory"),
    [(Launch(adapter="sklearn"), "fetched"), (Launch(command=("serve",)), "as given")],
)
def test_code_in_s3_is_fetched_for_the_model_server_alone(
    home: Home, settings: Settings, make_spec: MakeSpec, launch: Launch, directory: str
) -> None:
    paths = ContainerPaths(home, make_spec(environment=CODE), 1)
    plan = plan_launch(paths, launch, choose_address(paths, launch, PORTS), PORTS, settings)
    expected = {"fetched": f"{paths.base}/code", "as given": "s3://bucket/code.tar.gz"}
    assert plan.environment["SAGEMAKER_SUBMIT_DIRECTORY"] == expected[directory]


def test_the_user_may_change_what_is_suggested_but_not_what_must_be(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    environment = {"OMP_NUM_THREADS": "4", "SAGEMAKER_BASE_DIR": "/", "SAGEHEN_BIND": "unix:/x"}
    paths = ContainerPaths(home, make_spec(environment=environment, multi_model=True), 1)
    launch = Launch(adapter="xgboost")
    plan = plan_launch(paths, launch, "unix:/run/i-1.sock", PORTS, settings)
    assert plan.environment["OMP_NUM_THREADS"] == "4"
    assert plan.environment["HF_HOME"].endswith("/.cache/huggingface")
    assert plan.environment["SAGEMAKER_BASE_DIR"] == str(paths.base)
    assert plan.environment["SAGEHEN_BIND"] == "unix:/run/i-1.sock"
    assert plan.environment["SAGEMAKER_MULTI_MODEL"] == "true"
