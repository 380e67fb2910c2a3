"""Runs that are broken off: whoever comes next goes on with what they began.

`APPLY_KILL_STEP=1 pytest tests/boto/apply/test_broken_off.py` kills a run behind each of its
requests.
"""

import os
import signal
import subprocess
from contextlib import suppress

from botocore.httpsession import URLLib3Session

from support.deploy import DOUBLE, IMAGE, ROLE, loads_when
from support.server import SAGEHEN, eventually
from support.stacks import names, resource, served

STEP = int(os.environ.get("APPLY_KILL_STEP", "13"))


def test_a_run_that_is_killed_is_gone_on_with_and_two_do_not_cross(stack, deploy, gates):
    gate = gates / "gate"
    url = deploy.upload(f"apply/{stack.name}.tar.gz", loads_when(gate, 5.0))
    name = f"{stack.name}-serves"
    run = stack.start(served(url, 1, name))
    eventually(lambda: stack.name in str(deploy.sagemaker.list_endpoints(NameContains=name)))

    printed = stack.apply(served(url, 2, name), status=1)
    assert "works on the stack" in printed
    assert "(process " in printed

    run.send_signal(signal.SIGKILL)
    run.communicate()
    second = stack.start(served(url, 1, name))
    eventually(lambda: "waited for" in second.stdout.readline())
    eventually(lambda: second.stdout.readline().startswith("Waiting for AWS::SageMaker::Endpoint"))
    second.send_signal(signal.SIGINT)
    printed, _ = second.communicate(timeout=120)
    assert second.returncode == 130, printed
    assert "is still changing. Run the same command again to continue." in printed
    gate.touch()
    stack.apply(served(url, 1, name))
    assert deploy.invoke(name) == "[5.0, 10.0]"
    assert len(names(deploy.sagemaker, stack)) == 2


def test_before_the_first_step_a_signal_ends_a_run_at_once(stack):
    os.mkfifo(stack.file)
    run = subprocess.Popen(
        [SAGEHEN, "apply", str(stack.file)],
        env=stack.server.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    eventually(lambda: opened_for_writing(stack.file))
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=120)
    assert run.returncode != 0


def opened_for_writing(fifo):
    """Whether somebody reads it; whoever does reads on."""
    try:
        HELD.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


HELD = []


def many(stack, version):
    """Everything that is made quickly."""
    topic = {
        "DisplayName": f"topic {version}",
        "Subscription": [{"Protocol": "http", "Endpoint": f"http://127.0.0.1:9/{version}"}],
        "Tags": [{"Key": "version", "Value": str(version)}],
    }
    queue = {"VisibilityTimeout": 30 + version}
    to_queue = {
        "TopicArn": {"Ref": "Topic"},
        "Protocol": "sqs",
        "Endpoint": {"Fn::GetAtt": ["Queue", "Arn"]},
        "FilterPolicy": {"version": [version]},
    }
    container = {"Image": IMAGE, "ModelDataUrl": "s3://models/apply/model.tar.gz"}
    model = {
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": {**container, "Environment": {"V": version}},
    }
    return {
        "Resources": {
            "Topic": resource("SNS::Topic", topic),
            "Queue": resource("SQS::Queue", queue),
            "ToQueue": resource("SNS::Subscription", to_queue),
            "Model": resource("SageMaker::Model", model),
            f"Bucket{version}": resource("S3::Bucket", {"BucketName": f"{stack.name}-{version}"}),
        }
    }


def world(clients, stack):
    """What of `many` is there."""
    sns = clients["sns"]
    arns = [one["TopicArn"] for one in sns.list_topics()["Topics"] if stack.name in str(one)]
    listed = [sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"] for arn in arns]
    urls = clients["sqs"].list_queues(QueueNamePrefix=stack.name).get("QueueUrls", [])
    buckets = clients["s3"].list_buckets()["Buckets"]
    return {
        "topics": [
            sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] for arn in arns
        ],
        "subscriptions": sorted(one["Endpoint"].rpartition(":")[2] for of in listed for one in of),
        "queues": [
            clients["sqs"].get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"][
                "VisibilityTimeout"
            ]
            for url in urls
        ],
        "models": [
            clients["sagemaker"].describe_model(ModelName=name)["PrimaryContainer"]["Environment"]
            for name in names(clients["sagemaker"], stack)
        ],
        "buckets": [one["Name"] for one in buckets if one["Name"].startswith(stack.name)],
    }


def wanted(clients, stack, version):
    urls = clients["sqs"].list_queues(QueueNamePrefix=stack.name)["QueueUrls"]
    queue = [url.rpartition("/")[2] for url in urls]
    return {
        "topics": [f"topic {version}"],
        "subscriptions": sorted([*queue, f"9/{version}"]),
        "queues": [str(30 + version)],
        "models": [{"V": str(version)}],
        "buckets": [f"{stack.name}-{version}"],
    }


def reads_only(request):
    body = request.body if isinstance(request.body, str) else (request.body or b"").decode()
    said = str(request.headers.get("X-Amz-Target", "")) + body
    reads = ("Describe", "Action=Get", "Action=List", ".Get", ".List")
    return request.method in ("GET", "HEAD") or any(one in said for one in reads)


class Killed(BaseException):
    """The end of a run, wherever it is."""


def test_a_run_may_be_killed_behind_any_request(stack, deploy, clients, monkeypatch):
    deploy.upload("apply/model.tar.gz", DOUBLE)
    send, left = URLLib3Session.send, [10**9]

    def counted(session, request):
        if left[0] == 0:
            raise Killed  # Whoever is dead does nothing more.
        answer = send(session, request)
        left[0] -= not reads_only(request)
        if left[0] == 0:
            raise Killed
        return answer

    stack.apply(many(stack, 1))
    assert world(clients, stack) == wanted(clients, stack, 1)
    monkeypatch.setattr(URLLib3Session, "send", counted)
    # Some requests of each way there: tests/unit/apply goes through all of them.
    for count in range(1, 100, STEP):
        version = 1 + count % 2
        stack.write(many(stack, version))
        left[0] = count
        with suppress(Killed):
            stack.apply()
        killed, left[0] = left[0] == 0, 10**9
        stack.apply()
        assert world(clients, stack) == wanted(clients, stack, version), (
            f"killed behind request {count}"
        )
        if not killed:
            break
    assert "Nothing to do." in stack.apply()
    assert 20 < count < 100 - STEP
