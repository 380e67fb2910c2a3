import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.container_plan import (
    ContainerPaths,
    PortRange,
    choose_address,
    plan_launch,
    plan_network,
)
from sagehen.agent.launchers.launcher import NetworkPlan
from sagehen.agent.launchers.own_network import NetworkSupport
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
    assert address == f"link:{home.run}/i-1/http.sock"
    assert plan.command == (sys.executable, "-m", "sagehen.containers.modelserver")
    assert plan.environment["SAGEHEN_ADAPTER"] == "xgboost"
    assert plan.environment["SAGEHEN_BIND"] == f"unix:{home.run}/i-1/http.sock"
    assert plan.environment["SAGEMAKER_BASE_DIR"] == f"{home.instances}/i-1/primary/ml"
    assert plan.environment["MINE"] == "1"
    assert plan.environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert "SAGEMAKER_MULTI_MODEL" not in plan.environment
    assert plan.environment["SAGEHEN_ENVIRONMENTS"] == str(home.environments)
    assert plan.environment["SAGEHEN_ENVIRONMENTS_BYTES"] == str(settings.environment_cache_bytes)
    assert plan.environment["SAGEMAKER_STARTUP_TIMEOUT"] == "115"  # less than it has
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


BOTH = NetworkSupport(None, None)
NEITHER = NetworkSupport("EPERM", "EPERM")
SERVE = Launch(command=("serve",))


def test_a_command_has_its_own_network_and_listens_where_sagemakers_containers_do(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    paths = ContainerPaths(home, make_spec(), 1)
    home.address.write_text("http://127.0.0.1:9123\n")
    network = plan_network(paths, SERVE, BOTH, settings)
    assert network == NetworkPlan(outgoing=True, handoff=paths.socket, server_port=9123)
    address = choose_address(paths, SERVE, PORTS, network)
    plan = plan_launch(paths, SERVE, address, PORTS, settings, network)
    assert (address, plan.network) == (f"handoff:{paths.socket}", network)
    assert plan.environment["SAGEMAKER_BIND_TO_PORT"] == "8080"
    home.address.write_text("http://127.0.0.1:8080")
    network = plan_network(paths, SERVE, BOTH, settings)
    assert network is not None
    assert network.server_port == 0, "the container needs the port"


def test_others_and_those_that_cannot_or_shall_not_have_the_machines_network(
    home: Home, settings: Settings, make_spec: MakeSpec
) -> None:
    paths = ContainerPaths(home, make_spec(), 1)
    shared = settings.model_copy(update={"container_network": "machine"})
    assert plan_network(paths, SERVE, BOTH, shared) is None
    assert plan_network(paths, SERVE, NEITHER, settings) is None
    assert plan_network(paths, Launch(adapter="python"), BOTH, settings) is None


@pytest.mark.parametrize("network", ["own", "machine"])
def test_isolation_is_no_network_or_a_refusal_that_says_what_to_do(
    home: Home, settings: Settings, make_spec: MakeSpec, network: str
) -> None:
    settings = settings.model_copy(update={"container_network": network})
    paths = ContainerPaths(home, make_spec(network_isolation=True), 1)
    own = NetworkPlan(outgoing=False, handoff=paths.socket)
    assert plan_network(paths, SERVE, BOTH, settings) == own
    ours = plan_network(paths, Launch(adapter="python"), BOTH, settings)
    assert ours == NetworkPlan(outgoing=False)
    with pytest.raises(CannotStart, match=r"EnableNetworkIsolation .*EPERM.*where_possible"):
        plan_network(paths, SERVE, NEITHER, settings)
    lenient = settings.model_copy(update={"network_isolation": "where_possible"})
    assert plan_network(paths, SERVE, NEITHER, lenient) is None


def test_pip_is_used_as_the_user_does_unless_the_container_says(
    home: Home, settings: Settings, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mine/")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    paths = ContainerPaths(home, make_spec(environment={"PIP_NO_INDEX": "0"}), 1)
    plan = plan_launch(paths, Launch(adapter="python"), "link:/run/i-1.sock", PORTS, settings)
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
    plan = plan_launch(paths, launch, "link:/run/i-1.sock", PORTS, settings)
    assert plan.environment["OMP_NUM_THREADS"] == "4"
    assert plan.environment["HF_HOME"].endswith("/.cache/huggingface")
    assert plan.environment["SAGEMAKER_BASE_DIR"] == str(paths.base)
    assert plan.environment["SAGEHEN_BIND"] == f"unix:{paths.socket}"
    assert plan.environment["SAGEMAKER_MULTI_MODEL"] == "true"
