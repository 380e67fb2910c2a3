"""What a job's container is started with."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sagehen.agent.jobs.container_plan import plan_job_launch
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.failures import JobFailed
from sagehen.agent.jobs.host_folders import FIRST_HOST, HostPaths
from sagehen.agent.jobs.network import SHARED_ADDRESS
from sagehen.agent.launchers.launcher import LaunchPlan
from support.jobs import MakeSpec

OPT_ML = Path("/opt/ml")


@pytest.fixture
def plan(around: JobContext, make_spec: MakeSpec):
    def plan(mounted: bool = False, number: int = 1, **members: object) -> LaunchPlan:
        paths = HostPaths(around.home, make_spec(**members), number)
        return plan_job_launch(paths, around.settings, OPT_ML if mounted else paths.base, 7777)

    return plan


def test_an_entrypoint_goes_before_the_image(plan) -> None:
    planned = plan(image="counter", entrypoint=("run", "it"), arguments=("fast",))
    assert planned.command == ("run", "it", "fast")
    assert planned.folder.name == "code"


def test_the_images_command_stands_for_it(plan, around: JobContext) -> None:
    planned = plan(image="counter", entrypoint=(), arguments=("9",))
    assert (planned.command, planned.folder) == (("/bin/sh", "count.sh", "9"), around.home.path)


def test_a_script_is_run_by_the_toolkit(plan) -> None:
    planned = plan(entrypoint=(), hyperparameters={"sagemaker_program": "train.py"})
    assert planned.command == (sys.executable, "-m", "sagehen.containers.training_toolkit")


def test_without_a_program_the_job_fails_with_advice(plan) -> None:
    with pytest.raises(JobFailed, match="which program the image anything is to run"):
        plan(entrypoint=())


def test_the_users_variables_replace_only_suggestions(plan) -> None:
    users = {"LANG": "de", "TRAINING_JOB_NAME": "mine", "MORE": "1"}
    environment = plan(environment=users).environment
    assert (environment["LANG"], environment["MORE"]) == ("de", "1")
    assert environment["TRAINING_JOB_NAME"] == "count"


def test_hosts_find_the_first_by_name_only_where_names_can_be_mounted(plan) -> None:
    assert plan().environment["MASTER_ADDR"] == SHARED_ADDRESS
    mounted = plan(mounted=True, number=2)
    assert mounted.environment["MASTER_ADDR"] == FIRST_HOST
    assert mounted.environment["SAGEMAKER_SUBMIT_DIRECTORY"] == "/opt/ml/code"
    assert mounted.instance_id == "j-1-algo-2"


def test_network_isolation_leaves_no_keys(plan, around: JobContext) -> None:
    usual, isolated = plan(), plan(network_isolation=True)
    assert usual.environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert "AWS_SECRET_ACCESS_KEY" in usual.environment
    assert not [name for name in isolated.environment if name.startswith("AWS_ACCESS")]
    for plan in (usual, isolated):
        assert {around.home.run, around.home.credentials} <= set(plan.view.hidden)


def test_before_the_server_listens_its_address_is_that_of_the_settings(
    plan, around: JobContext
) -> None:
    around.home.address.unlink()
    settings = around.settings
    expected = f"http://{settings.host}:{settings.port}"
    assert plan().environment["AWS_ENDPOINT_URL"] == expected
    assert replace(plan(), log_bytes=1).log == around.home.job_log("count") / "algo-1.log"
