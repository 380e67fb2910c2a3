"""Three nodes of a cluster, one with the control: nodes die, hang and are drained."""

import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from support.cli import run_command
from support.cluster import ROOM, cluster_status, node_maker
from support.deploy import IMAGE, ROLE, Deployer
from support.traffic import traffic


@pytest.fixture(scope="module")
def head(make_server):
    return make_server(cluster="state", **ROOM)


@pytest.fixture(scope="module")
def make_node(head):
    with node_maker(head) as make:
        yield make


@pytest.fixture
def nodes(head, make_node, wait_until):
    """Two further nodes, new for each test."""
    made = [make_node(2), make_node(3)]
    wait_until(lambda: all(cluster_status(head)[each.node_id]["pids"] for each in made))
    yield made
    for node in made:
        node.close()


@pytest.fixture
def deploy(head):
    return Deployer(head)


def instances(head):
    """The instances by node."""
    return {key: set(node["instances"]) for key, node in cluster_status(head).items()}


def everywhere(head):
    return set.union(*instances(head).values())


def in_service(head, endpoint):
    status = json.loads(head.get("/_sagehen/status"))
    (found,) = [each for each in status["endpoints"] if each["name"] == endpoint]
    return found["variants"][0]["in_service"]


def routed_nodes(head):
    table = json.loads((head.home / "run" / "routes.json").read_bytes())
    return [
        instance["node_id"]
        for route in table["routes"].values()
        for variant in route["variants"]
        for instance in variant["instances"]
    ], table["nodes"]


def invocations(head, endpoint):
    status = json.loads(head.get("/_sagehen/status"))
    (found,) = [each for each in status["endpoints"] if each["name"] == endpoint]
    return found["variants"][0]["invocations"]


def client_of(head, url, service):
    keys = head.env
    return boto3.client(
        service,
        endpoint_url=url,
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}),
    )


def invoke(head, url, endpoint):
    """The statuses of as many requests as surely go to all instances."""
    client = client_of(head, url, "sagemaker-runtime")
    return {
        client.invoke_endpoint(EndpointName=endpoint, Body=b"[1]", ContentType="application/json")[
            "ResponseMetadata"
        ]["HTTPStatusCode"]
        for _ in range(30)
    }


def test_instances_move_from_a_node_that_is_killed(head, nodes, deploy, wait_until):
    endpoint = deploy.endpoint("killed", InitialInstanceCount=3)
    assert endpoint["EndpointStatus"] == "InService"
    before = instances(head)
    assert [len(each) for each in before.values()] == [1, 1, 1]
    routed, peers = routed_nodes(head)
    assert set(routed) == set(peers) == set(before)
    assert peers["node-2"]["peer_address"] == nodes[0].addresses["peer"]
    # The other nodes have the same table.
    table = (head.home / "run" / "routes.json").read_bytes()
    wait_until(lambda: nodes[1].home.routes.read_bytes() == table)
    status = cluster_status(head)
    assert {node.process.pid for node in nodes} <= {
        pid for node in status.values() for pid in node["pids"]
    }
    assert [node["head"] for node in status.values()].count(True) == 1
    # Each node's gateways serve the instances of all.
    for url in (head.url, f"http://{nodes[1].addresses['gateway']}"):
        assert invoke(head, url, "killed") == {200}
    # They pass operations on to the control, and tell it what they count.
    there = client_of(head, f"http://{nodes[1].addresses['gateway']}", "sagemaker")
    assert there.describe_endpoint(EndpointName="killed")["EndpointStatus"] == "InService"
    wait_until(lambda: invocations(head, "killed") == 60)

    nodes[0].kill()
    # They come up under their ids.
    wait_until(lambda: everywhere(head) == set.union(*before.values()))
    wait_until(lambda: in_service(head, "killed") == 3)
    after = instances(head)
    assert not cluster_status(head)["node-2"]["pids"]
    assert sorted(map(len, after.values())) == [0, 1, 2]
    assert invoke(head, head.url, "killed") == {200}
    deploy.sagemaker.delete_endpoint(EndpointName="killed")
    wait_until(lambda: not any(instances(head).values()))


def test_what_hung_is_deleted_when_it_goes_on(head, nodes, deploy, wait_until):
    assert deploy.endpoint("hung", InitialInstanceCount=3)["EndpointStatus"] == "InService"
    moved = instances(head)["node-3"]
    nodes[1].signal_all(signal.SIGSTOP)
    try:
        wait_until(lambda: instances(head)["node-3"] == set() and moved <= everywhere(head))
        wait_until(lambda: in_service(head, "hung") == 3)
    finally:
        nodes[1].signal_all(signal.SIGCONT)
    wait_until(lambda: cluster_status(head)["node-3"]["pids"])
    wait_until(lambda: instances(head)["node-3"] == set())
    assert moved <= everywhere(head)
    deploy.sagemaker.delete_endpoint(EndpointName="hung")
    wait_until(lambda: not any(instances(head).values()))


def test_a_node_is_drained_without_loss(head, nodes, deploy, wait_until):
    assert deploy.endpoint("drained", InitialInstanceCount=3)["EndpointStatus"] == "InService"
    there = client_of(head, f"http://{nodes[1].addresses['gateway']}", "sagemaker-runtime")
    with traffic(there, "drained") as seen:
        drained = run_command("cluster", "drain", "node-2", "--home", head.home)
        assert drained.status == 0, drained.stderr
        assert "Nothing runs on node-2: it can be stopped." in drained.stdout
        assert instances(head)["node-2"] == set()
        assert in_service(head, "drained") == 3
        # It stays so, also when it starts again.
        nodes[0].stop()
        assert cluster_status(head)["node-2"]["instances"] == []
        nodes[0].start()
        wait_until(lambda: cluster_status(head)["node-2"]["pids"])
        again = run_command("cluster", "drain", "node-2", "--home", head.home)
        assert again.status == 0, again.stderr
        undone = run_command("cluster", "drain", "node-2", "--undo", "--home", head.home)
        assert undone.status == 0, undone.stderr
        own = next(key for key, node in cluster_status(head).items() if node["head"])
        drained = run_command("cluster", "drain", own, "--home", head.home)
        assert drained.status == 0, drained.stderr
        moved = instances(head)
        assert moved[own] == set()
        assert moved["node-2"]
        # Instances leave a node that is stopped before it ends.
        nodes[0].stop()
        assert instances(head) == {own: set(), "node-2": set(), "node-3": everywhere(head)}
        assert in_service(head, "drained") == 3
        # Now there is none left to move to.
        refused = run_command("cluster", "drain", "node-3", "--home", head.home)
        assert "No other node takes work" in refused.stderr
        seen.goes_on()
    assert seen.errors == []
    assert seen.answers > 50
    run_command("cluster", "drain", own, "--undo", "--home", head.home)
    unknown = run_command("cluster", "drain", "none", "--home", head.home)
    assert "There is no node none." in unknown.stderr
    deploy.sagemaker.delete_endpoint(EndpointName="drained")
    wait_until(lambda: not any(instances(head).values()))


PRINTING = """
def model_fn(model_dir):
    return 2.0

def predict_fn(data, model):
    print("predicts", data, flush=True)
    return data * model
"""


def test_logs_of_all_nodes_are_read(head, nodes, deploy, wait_until):
    """Their homes are elsewhere: they are asked. After its machine, a log is gone by name."""
    assert deploy.endpoint("speaks", PRINTING, InitialInstanceCount=3)["EndpointStatus"] == (
        "InService"
    )
    before = instances(head)
    logs = head.client("logs")
    group = "/aws/sagemaker/Endpoints/speaks"
    invoke(head, head.url, "speaks")

    def printed():
        found = logs.filter_log_events(logGroupName=group, filterPattern="predicts")
        return [event["logStreamName"].rpartition("/")[2] for event in found["events"]]

    wait_until(lambda: len(printed()) == 30)
    assert set(printed()) == everywhere(head)
    streams = logs.describe_log_streams(logGroupName=group)["logStreams"]
    assert {stream["logStreamName"] for stream in streams} == {
        f"AllTraffic/{each}" for each in everywhere(head)
    }
    (there,) = before["node-2"]
    events = logs.get_log_events(logGroupName=group, logStreamName=f"AllTraffic/{there}")["events"]
    assert sum("predicts" in event["message"] for event in events) == printed().count(there)
    shown = run_command("logs", "speaks", "--grep", "predicts", "--home", head.home)
    assert (shown.status, len(shown.stdout.splitlines())) == (0, 30)
    # All instances are measured, wherever they are.
    metrics = head.get("/_sagehen/metrics").decode()
    assert all(f'instance="{each}"' in metrics for each in everywhere(head))

    nodes[0].kill()
    wait_until(lambda: not cluster_status(head)["node-2"]["pids"])
    found = logs.filter_log_events(logGroupName=group)
    assert found["searchedLogStreams"] == [
        {"logStreamName": "(all on the machine node-2)", "searchedCompletely": False}
    ]
    headers = logs.describe_log_streams(logGroupName=group)["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-sagehen-warning"].endswith("that do not answer: node-2")
    shown = run_command("logs", "speaks", "--home", head.home)
    assert "Without the logs on machines that do not answer: node-2." in shown.stderr

    def is_named():
        problems = json.loads(head.get("/_sagehen/status"))["problems"]
        return any(problem.startswith("Node node-2: It does not answer") for problem in problems)

    wait_until(is_named)
    deploy.sagemaker.delete_endpoint(EndpointName="speaks")
    wait_until(lambda: not any(instances(head).values()))


HELD = """
import time
from pathlib import Path

def model_fn(model_dir):
    return 2.0

def predict_fn(data, model):
    Path({begun!r}).touch()
    while not Path({gate!r}).exists():
        time.sleep(0.01)
    return data * model
"""


def test_an_instance_that_leaves_ends_the_requests_of_other_nodes_first(
    head, nodes, deploy, gates, wait_until
):
    """Its requests come through gateways of which none is on control's machine."""
    gate, begun = gates / "open", gates / "begun"
    own = next(key for key, node in cluster_status(head).items() if node["head"])
    for node in (own, nodes[1].node_id):
        assert run_command("cluster", "drain", node, "--home", head.home).status == 0
    deploy.endpoint("leaves", HELD.format(gate=str(gate), begun=str(begun)))
    (old,) = instances(head)[nodes[0].node_id]
    for node in (own, nodes[1].node_id):
        run_command("cluster", "drain", node, "--undo", "--home", head.home)
    wait_until(lambda: old in nodes[1].home.routes.read_text())
    there = client_of(head, f"http://{nodes[1].addresses['gateway']}", "sagemaker-runtime")

    def call():
        return there.invoke_endpoint(
            EndpointName="leaves", Body=b"[1]", ContentType="application/json"
        )["Body"].read()

    with ThreadPoolExecutor() as pool:
        held = pool.submit(call)
        wait_until(begun.exists)
        deploy.config("leaves-anew")
        deploy.sagemaker.update_endpoint(EndpointName="leaves", EndpointConfigName="leaves-anew")
        assert deploy.settled("leaves")["EndpointStatus"] == "InService"
        control_log = head.home / "logs" / "control.log"
        drains = f"action=draining endpoint=leaves instance={old}"
        try:
            # Otherwise it would have been told to stop, and the request cut off by its agent.
            wait_until(lambda: drains in control_log.read_text())
            assert old in instances(head)[nodes[0].node_id]
        finally:
            gate.touch()
        assert held.result() == b"[2.0]"
    wait_until(lambda: old not in everywhere(head))
    deploy.sagemaker.delete_endpoint(EndpointName="leaves")
    wait_until(lambda: not any(instances(head).values()))


COUNTING = """
import json, pathlib, time
kept = pathlib.Path("/opt/ml/checkpoints/step")
step = int(kept.read_text()) if kept.exists() else 0
while step < 40:
    time.sleep(0.25)
    step += 1
    kept.write_text(str(step))
pathlib.Path("/opt/ml/model/steps").write_text(str(step))
"""


def test_each_node_answers_from_offline_results(head, nodes, deploy, wait_until):
    deploy.s3.create_bucket(Bucket="results-of-nodes")
    deploy.s3.put_object(
        Bucket="results-of-nodes", Key="job/part-0.csv.out", Body=b"a,0.1\nb,0.2\n"
    )
    variable = "SAGEHEN_OFFLINE_RESULTS"
    environment = {
        variable: "s3://results-of-nodes/job/",
        f"{variable}_KEY": "0",
        f"{variable}_ONLY": "true",
    }
    deploy.sagemaker.create_model(
        ModelName="known",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "Environment": environment},
    )
    variant = {
        "VariantName": "all",
        "ModelName": "known",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="known", ProductionVariants=[variant]
    )
    deploy.sagemaker.create_endpoint(EndpointName="known", EndpointConfigName="known")
    assert deploy.settled("known")["EndpointStatus"] == "InService"
    (store,) = (head.home / "offline-results").glob("*.db")
    for node in nodes:
        wait_until(lambda node=node: (node.home.offline_results / store.name).exists())
        there = client_of(head, f"http://{node.addresses['gateway']}", "sagemaker-runtime")

        def is_answered(there=there):
            with suppress(ClientError):
                answer = there.invoke_endpoint(
                    EndpointName="known", Body=b"b,1,2", ContentType="text/csv"
                )
                return answer["Body"].read() == b"0.2\n"
            return False

        # The table is read again a moment after the copy is there.
        wait_until(is_answered)
    deploy.sagemaker.delete_endpoint(EndpointName="known")


def test_a_job_goes_on_elsewhere_from_its_checkpoint(head, nodes, deploy, gates, wait_until):
    program = gates / "count.py"
    program.write_text(COUNTING)
    deploy.s3.create_bucket(Bucket="jobs")
    # The control's own node takes nothing, so that the job is on one that dies alone.
    own = next(key for key, node in cluster_status(head).items() if node["head"])
    for node in (own, nodes[1].node_id):
        assert run_command("cluster", "drain", node, "--home", head.home).status == 0
    deploy.sagemaker.create_training_job(
        TrainingJobName="counting",
        AlgorithmSpecification={
            "TrainingImage": "none",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": [sys.executable, str(program)],
        },
        RoleArn=ROLE,
        OutputDataConfig={"S3OutputPath": "s3://jobs/out"},
        CheckpointConfig={"S3Uri": "s3://jobs/checkpoints"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )

    def checkpoint():
        try:
            found = deploy.s3.get_object(Bucket="jobs", Key="checkpoints/step")
        except ClientError:
            return 0
        return int(found["Body"].read())

    wait_until(lambda: checkpoint() >= 3)
    for node in (own, nodes[1].node_id):
        run_command("cluster", "drain", node, "--undo", "--home", head.home)
    nodes[0].kill()

    def status():
        return deploy.sagemaker.describe_training_job(TrainingJobName="counting")

    wait_until(lambda: status()["TrainingJobStatus"] == "Completed", 240)
    seen = [each["Status"] for each in status()["SecondaryStatusTransitions"]]
    assert "Restarting" in seen
    uploaded = deploy.s3.list_objects_v2(Bucket="jobs", Prefix="out/counting/output/")
    assert [each["Key"] for each in uploaded["Contents"]] == ["out/counting/output/model.tar.gz"]
