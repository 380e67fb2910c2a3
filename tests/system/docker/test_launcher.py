"""The docker launcher with a real engine and a real client: images as SageMaker runs them."""

import json
import os
import resource
import signal

import pytest

from support.deploy import ROLE, pack
from support.docker.endpoints import CAPABILITY, containers_of
from support.docker.jobs import ImageJobs
from support.server import eventually

MEMORY = 256 * 2**20


@pytest.fixture(scope="module")
def server(engine, make_server):
    return make_server(
        launcher="docker",
        docker_host=engine.host,
        docker_registries=json.dumps({"*.dkr.ecr.*.amazonaws.com": ""}),
        instance_memory_bytes=str(MEMORY),
        images=json.dumps({"sagehen-python": "process"}),
    )


ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.fixture(scope="module")
def plain(images):
    """An endpoint of two instances."""
    container = images.container(f"{ECR}/mine:1", Environment={"OF": "the user"})
    described = images.create("plain", container, count=2)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    return "plain"


def test_a_container_gets_what_sagemaker_gives_it(engine, images, plain):
    about = json.loads(images.invoke(plain, b"describe"))
    assert about["command"] == ["/opt/program/serve"]
    assert about["pid"] == 1
    assert about["hostname"] == "primary"
    assert about["ml"] == ["code", "model"]  # the image has an empty code
    assert about["model"] == ["factor"]
    assert about["shm"] == MEMORY // 2
    assert about["files"] == min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert about["environment"]["OF"] == "the user"
    assert about["environment"]["PATH"] == "/opt/program:/usr/bin:/bin"
    assert not {"SAGEMAKER_BIND_TO_PORT", "SAGEHEN_BASE_DIR"} & about["environment"].keys()
    expected = {"AWS_REGION", "AWS_DEFAULT_REGION", "SAGEMAKER_REGION", "OF", "PATH", "HOSTNAME"}
    assert about["environment"].keys() - {"HOME", "LC_CTYPE"} == expected
    limits = about["limits"]
    assert str(MEMORY) in (limits.get("memory.limit_in_bytes"), limits.get("memory.max"))


def test_two_instances_and_another_endpoint_answer_with_their_own_models(engine, images, plain):
    other = images.create("other", images.container("mine:1", 10.0))
    assert other["EndpointStatus"] == "InService"
    assert {images.invoke(plain, b"4") for _ in range(8)} == {"8.0"}
    assert {images.invoke("other", b"4") for _ in range(4)} == {"40.0"}
    assert len(containers_of(engine, plain)) == 2
    images.delete("other")
    eventually(lambda: not containers_of(engine, "other"))


def test_output_is_in_the_log_and_a_deleted_endpoint_ends_by_sigterm(server, engine, images):
    images.create("noisy", images.container("mine:1"))
    assert images.invoke("noisy", b"shout") == "shouted"
    (log,) = (server.home / "logs" / "endpoints" / "noisy").rglob("*.log")
    eventually(lambda: log.read_text().count("out\n") == 50_000)
    eventually(lambda: "to stderr\n" in log.read_text())
    images.delete("noisy")
    eventually(lambda: not containers_of(engine, "noisy"))
    assert log.read_text().endswith("SIGTERM came\n")


def test_a_pipeline_gives_each_container_a_port_of_its_own(engine, images):
    described = images.create(
        "steps", images.container("mine:1", 3.0), images.container("user:1", 5.0)
    )
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert images.invoke("steps", b"2") == "30.0"
    environments = [entry.attrs["Config"]["Env"] for entry in containers_of(engine, "steps")]
    told = ["SAGEMAKER_BIND_TO_PORT=8080" in environment for environment in environments]
    assert sorted(told) == [False, True]  # the second image has no such label
    images.delete("steps")


def test_the_containers_of_a_pipeline_share_the_memory_of_their_instance(images):
    half = str(MEMORY * 5 // 8)
    reason = images.fails(
        "too-much",
        images.container("mine:1", 3.0, Environment={"HOLD": half}),
        images.container("mine:1", 5.0, Environment={"HOLD": half}),
    )
    assert "it passed the 256 MiB of memory of its instance" in reason


def test_a_multi_model_endpoint_loads_and_needs_the_label(images):
    for number in (2, 7):
        body = pack({"factor": str(number)})
        images.deploy.s3.put_object(Bucket="models", Key=f"many/{number}.tar.gz", Body=body)
    container = {"Image": "many:1", "ModelDataUrl": "s3://models/many/", "Mode": "MultiModel"}
    assert images.create("many", container)["EndpointStatus"] == "InService"
    answers = [images.invoke("many", b"3", TargetModel=f"{n}.tar.gz") for n in (2, 7, 2)]
    assert answers == ["6.0", "21.0", "6.0"]
    images.delete("many")
    reason = images.fails("unlabelled", {**container, "Image": "mine:1"})
    assert f"does not contain required {CAPABILITY}.multi-models=true Docker label(s)." in reason


def test_an_asynchronous_endpoint_answers_in_s3(images):
    output = {"OutputConfig": {"S3OutputPath": "s3://models/answers"}}
    images.create("later", images.container("mine:1", 6.0), AsyncInferenceConfig=output)
    s3 = images.deploy.s3
    s3.put_object(Bucket="models", Key="question", Body=b"7")
    accepted = images.deploy.runtime.invoke_endpoint_async(
        EndpointName="later", InputLocation="s3://models/question"
    )
    key = accepted["OutputLocation"].removeprefix("s3://models/")

    def is_there():
        listed = s3.list_objects_v2(Bucket="models", Prefix=key).get("Contents", [])
        return [entry["Key"] for entry in listed] == [key]

    eventually(is_there)
    assert s3.get_object(Bucket="models", Key=key)["Body"].read() == b"42.0"
    images.delete("later")


def test_failures_say_what_is_wrong(images):
    reason = images.fails("absent", {"Image": f"{ECR}/absent:1"})
    assert "CannotStartContainerError" in reason
    assert f"the image absent:1 (for {ECR}/absent:1, by docker_registries)" in reason
    reason = images.fails("no-serve", {"Image": "bare:1"})
    assert "CannotStartContainerError" in reason
    assert 'exec: "serve": executable file not found in $PATH' in reason
    reason = images.fails("ends", images.container("mine:1", Environment={"FAIL": "no such thing"}))
    assert "no such thing; exit status 1" in reason
    reason = images.fails("full", images.container("mine:1", Environment={"FILL": "yes"}))
    assert "it passed the 256 MiB of memory of its instance" in reason


def test_programs_of_this_machine_run_beside_images(images):
    assert images.deploy.endpoint("stand-in")["EndpointStatus"] == "InService"
    assert images.deploy.invoke("stand-in", "[1, 2]") == "[2.0, 4.0]"


def test_an_isolated_endpoint_has_no_network_and_answers(engine, images):
    container = images.container("mine:1", 9.0, Environment={"LISTEN": "127.0.0.1"})
    described = images.create("alone", container, isolated=True)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    assert images.invoke("alone", b"2") == "18.0"
    assert json.loads(images.invoke("alone", b"describe"))["devices"] == ["lo"]
    (process,) = containers_of(engine, "alone")
    assert process.attrs["HostConfig"]["NetworkMode"] == "none"
    images.delete("alone")
    eventually(lambda: not containers_of(engine, "alone"))
    reason = images.fails("alone-ends", {**container, "Environment": {"FAIL": "no"}}, isolated=True)
    assert "no; exit status 1" in reason


@pytest.mark.parametrize("isolated", [False, True])
def test_the_log_names_another_port_that_answers(images, isolated):
    container = images.container("mine:1", Environment={"SAGEMAKER_BIND_TO_PORT": "9000"})
    name = f"elsewhere-{isolated}".lower()
    images.begin(name, container, isolated=isolated)
    hint = (
        "nothing listens on port 8080; the container's processes listen on 9000, "
        "and /ping is answered on 9000"
    )
    logs = images.deploy.server.home / "logs"
    eventually(
        lambda: any(name in str(log) and hint in log.read_text() for log in logs.rglob("*.log")), 60
    )
    assert images.deploy.status(name) == "Creating"


@pytest.fixture(scope="module")
def jobs(server, deploy):
    return ImageJobs(deploy)


def test_a_training_job_of_two_hosts(engine, jobs):
    jobs.start("pair", count=2)
    described = jobs.ended("pair")
    assert described["TrainingJobStatus"] == "Completed", described
    about = jobs.about("pair")
    assert about["command"] == ["/opt/program/train"]
    assert about["sum"] == 7
    assert about["reached"] == 200
    assert about["peers"] == ["algo-2"]
    assert about["resources"]["network_interface_name"] == "eth0"
    assert "eth0" in about["devices"]
    assert described["FinalMetricDataList"][0]["Value"] == 7
    saved = jobs.deploy.s3.list_objects_v2(Bucket="jobs", Prefix="checkpoints/pair/")
    assert [entry["Key"] for entry in saved["Contents"]] == ["checkpoints/pair/step"]
    eventually(
        lambda: (
            not engine.containers.list(
                all=True, filters={"label": "sagehen.host"}, ignore_removed=True
            )
        )
    )
    eventually(lambda: not [n for n in engine.networks.list() if described_job(n)])


def described_job(network):
    return network.name.startswith("sagehen-") and network.name.endswith("-1")


def test_an_isolated_job_has_no_network_and_no_keys(jobs):
    jobs.start("alone", isolated=True)
    assert jobs.ended("alone")["TrainingJobStatus"] == "Completed"
    about = jobs.about("alone")
    assert about["devices"] == ["lo"]
    assert not [name for name in about["environment"] if name.startswith("AWS_") and "KEY" in name]
    assert about["resources"]["network_interface_name"] == "lo"


def test_an_entry_point_replaces_the_images_command(jobs):

    algorithm = {
        "ContainerEntrypoint": ["/opt/program/train"],
        "ContainerArguments": ["one", "two"],
    }
    jobs.start("entry", algorithm=algorithm)
    assert jobs.ended("entry")["TrainingJobStatus"] == "Completed"
    assert jobs.about("entry")["command"] == ["/opt/program/train", "one", "two"]


def test_a_job_fails_and_is_stopped(engine, jobs):
    jobs.start("failing", fail="the numbers are odd")
    described = jobs.ended("failing")
    assert described["FailureReason"] == "AlgorithmError: the numbers are odd, exit code: 3"
    jobs.start("stopped", wait="yes")
    label = {"label": "sagehen.training-job=stopped"}
    eventually(lambda: bool(engine.containers.list(filters=label, ignore_removed=True)))
    eventually(
        lambda: b"waiting" in engine.containers.list(filters=label, ignore_removed=True)[0].logs()
    )
    jobs.deploy.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert jobs.ended("stopped")["TrainingJobStatus"] == "Stopped"
    eventually(lambda: not engine.containers.list(all=True, filters=label, ignore_removed=True))


def test_a_new_agent_removes_containers_of_its_home_only(server, engine, images, plain):
    mine = containers_of(engine, plain)
    labels = mine[0].labels
    foreign = [
        engine.containers.create("mine:1", "serve", labels=changed)
        for changed in (
            {},
            {**labels, "sagehen.home": "another"},
            {**labels, "sagehen.home-path": "/another"},
        )
    ]
    os.kill(server.pid("agent"), signal.SIGKILL)
    before = {container.id for container in mine}

    def replaced():
        now = {
            container.id
            for container in containers_of(engine, plain)
            if container.id not in {other.id for other in foreign}
        }
        return len(now) == 2 and not now & before

    eventually(replaced)
    eventually(lambda: images.deploy.status(plain) == "InService")

    def answers():
        try:
            return images.invoke(plain, b"4") == "8.0"
        except images.deploy.runtime.exceptions.ClientError:
            return False

    eventually(answers)
    left = {container.id for container in engine.containers.list(all=True, ignore_removed=True)}
    assert {container.id for container in foreign} <= left
    for container in foreign:
        container.remove(force=True)


def test_a_transform_job_runs_an_image(engine, images):
    sagemaker, s3 = images.deploy.sagemaker, images.deploy.s3
    s3.create_bucket(Bucket="batch")
    s3.put_object(Bucket="batch", Key="in/a.csv", Body=b"1\n2\n3\n")
    sagemaker.create_model(
        ModelName="batch",
        ExecutionRoleArn=ROLE,
        PrimaryContainer=images.container("mine:1", Environment={"OF": "the user"}),
    )
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://batch/in/"}
    sagemaker.create_transform_job(
        TransformJobName="batch",
        ModelName="batch",
        BatchStrategy="SingleRecord",
        TransformInput={"DataSource": {"S3DataSource": source}, "SplitType": "Line"},
        TransformOutput={"S3OutputPath": "s3://batch/out", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )

    def described():
        return sagemaker.describe_transform_job(TransformJobName="batch")

    eventually(lambda: described()["TransformJobStatus"] in ("Completed", "Failed"))
    assert described()["TransformJobStatus"] == "Completed", described()
    output = s3.get_object(Bucket="batch", Key="out/a.csv.out")["Body"].read()
    assert output == b"2.0\n4.0\n6.0\n"
    eventually(lambda: not containers_of(engine, "batch"))
