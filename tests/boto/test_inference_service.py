"""The Async-Inference-Service as its users meet it: HTTP, a key, results in S3, mail, topics."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest

from support import plain_http
from support.cli import run_command
from support.mailbox import Mailbox
from support.server import Server, eventually

JOB = """
import json, os, pathlib, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
told = json.loads((base / "input/config/hyperparameters.json").read_text())
if told.get("do") == "wait":
    time.sleep(600)
if told.get("do") == "fail":
    (base / "output/failure").write_text("the model is broken")
    sys.exit(3)
given = base / "input/data/input"
text = "".join(file.read_text() for file in sorted(given.iterdir())) if given.is_dir() else ""
(base / "output/data").mkdir(parents=True, exist_ok=True)
(base / "output/data/answer.txt").write_text(text.upper() + told.get("say", ""))
"""
SCRIPTED = {
    "sagemaker_program": "run.py",
    "sagemaker_submit_directory": "s3://results/code/scripted.tar.gz",
}
OWNER = "owner@example.org"


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    mailbox.start()
    yield mailbox
    mailbox.stop()


@pytest.fixture(scope="module")
def serving(make_server: Callable[..., Server], mailbox: Mailbox, module_gates: Path) -> Server:
    program = module_gates / "run.py"
    program.write_text(JOB)
    return make_server(
        images=json.dumps({"model_*": [sys.executable, str(program)]}),
        smtp_host="127.0.0.1",
        smtp_port=str(mailbox.port),
        inference_service__s3_bucket="results",
        inference_service__white_list="model_a, scripted,model_wait",
        inference_service__types=json.dumps({"scripted": {"hyperparameters": SCRIPTED}}),
        inference_service__limit="2",
        inference_service__instance_type="ml.m5.large",
        inference_service__emails=OWNER,
    )


@pytest.fixture(scope="module")
def key(serving: Server) -> str:
    return api_key(serving, "create", "tests")


def api_key(server: Server, *words: str) -> str:
    """What the command says."""
    ended = run_command("api-key", *words, "--home", server.home)
    return ended.stdout.strip() or ended.stderr.strip()


class Caller:
    """Asks as curl does."""

    def __init__(self, server: Server, key: str) -> None:
        self.server = server
        self.key = key

    def __call__(
        self,
        method: str = "POST",
        path: str = "",
        body: Any = None,
        stage: str = "dev",
        **more: str,
    ) -> tuple[int, Any]:
        url = f"{self.server.url}/{stage}/inference{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-api-key": self.key, "content-type": "application/json", **more}
        answer = plain_http.ask(url, data, headers, method)
        return answer.status, answer.json

    def job(self, name: str) -> dict[str, Any]:
        return dict(self("GET", f"/{name}")[1])

    def newest(self) -> str:
        return str(self("GET", "?limit=1")[1]["jobs"][0]["jobName"])

    def start(self, **body: Any) -> str:
        status, told = self(body=body)
        assert status == 200, told
        return str(told["errMsg"].partition("[")[2].partition("]")[0])

    def end_of(self, name: str) -> dict[str, Any]:
        eventually(lambda: self.job(name)["endTime"] is not None)
        return self.job(name)

    def run(self, **body: Any) -> dict[str, Any]:
        return self.end_of(self.start(**body))


@pytest.fixture(scope="module")
def ask(serving: Server, key: str) -> Caller:
    return Caller(serving, key)


def test_a_job_from_the_request_to_the_mail(serving, ask, mailbox, tmp_path):
    ended = ask.run(type="model_a", input="words to shout", parameters={"say": 1})
    name = ended["jobName"]
    assert (ended["status"], ended["type"]) == ("Completed", "model_a")
    assert ended["resultUri"] == f"s3://results/output/{name}/output/output.tar.gz"

    s3 = serving.client("s3")
    s3.download_file("results", f"output/{name}/output/output.tar.gz", str(tmp_path / "o.tar.gz"))
    subprocess.run(["tar", "xzf", "o.tar.gz"], cwd=tmp_path, check=True)
    assert (tmp_path / "answer.txt").read_text() == "WORDS TO SHOUT1"

    eventually(lambda: bool(mails(mailbox, name)))
    (mail,) = mails(mailbox, name)
    assert mail["To"] == OWNER
    assert mail["Subject"] == f"Inference job {name}: Completed"
    text = mail.get_payload(decode=True).decode()
    assert "Model:     model_a" in text
    assert f"Result:    {ended['resultUri']}" in text

    sagemaker = serving.client("sagemaker")
    described = sagemaker.describe_training_job(TrainingJobName=name)
    assert described["TrainingJobStatus"] == "Completed"
    tags = sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert {"Key": "sagehen:inference-type", "Value": "model_a"} in tags


def mails(mailbox: Mailbox, name: str) -> list[Any]:
    return [mail for mail in mailbox.to(OWNER) if name in mail["Subject"].replace("\r\n", "")]


def test_a_type_without_a_command_is_run_by_the_script_runner(serving, ask, tmp_path):
    (tmp_path / "run.py").write_text(JOB)
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "run.py", "run.py")
    serving.client("s3").upload_file(
        str(tmp_path / "code.tar.gz"), "results", "code/scripted.tar.gz"
    )
    ended = ask.run(type="scripted", input={"a": 1}, parameters={"say": "x"})
    assert ended["status"] == "Completed", ended
    status, told = ask(body={"type": "scripted", "parameters": {"sagemaker_program": "evil.py"}})
    assert (status, told["status"]) == (501, 501)


def test_failures_and_stops_are_told_too_and_filtered_by_attributes(serving, ask):
    sqs, sns = serving.client("sqs"), serving.client("sns")
    queue = sqs.create_queue(QueueName="failures")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    topic = "arn:aws:sns:us-east-1:000000000000:inference-dev"
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn["Attributes"]["QueueArn"],
        Attributes={"FilterPolicy": json.dumps({"status": ["Failed", "Stopped"]})},
    )
    failed = ask.run(type="model_a", parameters={"do": "fail"})
    assert failed["status"] == "Failed"
    assert "the model is broken" in failed["failureReason"]
    ask.run(type="model_a")
    waiting = ask.start(type="model_a", parameters={"do": "wait"})
    eventually(lambda: ask.job(waiting)["secondaryStatus"] == "Training")
    assert ask("DELETE", f"/{waiting}")[0] == 202
    assert ask.end_of(waiting)["status"] == "Stopped"
    told: list[dict[str, Any]] = []

    def all_told() -> bool:
        got = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1, MaxNumberOfMessages=10)
        for message in got.get("Messages", []):
            told.append(json.loads(json.loads(message["Body"])["Message"]))
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return len(told) >= 2

    eventually(all_told)
    assert {one["eventId"] for one in told} == {
        f"{failed['jobName']}:Failed",
        f"{waiting}:Stopped",
    }


def test_a_hundred_at_once_take_two_slots_and_get_them_back(ask):
    body = {"type": "model_wait", "parameters": {"do": "wait"}}
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(body=body), range(100)))
    assert sorted(status for status, _ in answers) == [200] * 2 + [502] * 98
    running = ask("GET", "?type=model_wait")[1]["jobs"]
    for job in running:
        ask("DELETE", f"/{job['jobName']}")
    for job in running:
        ask.end_of(job["jobName"])
    assert ask.run(type="model_wait")["status"] == "Completed"


def test_without_a_key_nobody_is_heard(serving, key):
    stranger = Caller(serving, key[:-1])
    assert stranger(body={"type": "model_a"}) == (403, {"message": "Forbidden"})
    assert stranger("GET") == (403, {"message": "Forbidden"})


def test_a_key_that_was_taken_away_opens_nothing(serving):
    def verb(*words: str) -> str:
        return api_key(serving, *words)

    caller = Caller(serving, verb("create", "short-lived"))
    assert caller("GET")[0] == 200
    assert "short-lived" in verb("list")
    assert caller.key not in verb("list", "--json")
    assert "already" in verb("create", "short-lived")
    assert verb("delete", "short-lived") == ""
    assert caller("GET")[0] == 403
    assert "There is no key" in verb("delete", "short-lived")


def test_a_signed_request_to_such_a_path_is_s3s(serving, ask):
    s3 = serving.client("s3")
    s3.create_bucket(Bucket="dev")
    s3.put_object(Bucket="dev", Key="inference", Body=b"mine")
    assert s3.get_object(Bucket="dev", Key="inference")["Body"].read() == b"mine"
    s3.delete_object(Bucket="dev", Key="inference")
    s3.delete_bucket(Bucket="dev")


def signed(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A request to an own path, as `sagehen apply` makes them."""
    env = server.env
    data = b"" if body is None else json.dumps(body).encode()
    request = botocore.awsrequest.AWSRequest(method, server.url + path, data=data)
    keys = botocore.credentials.Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"])
    botocore.auth.SigV4Auth(keys, "execute-api", "us-east-1").add_auth(request)
    answer = plain_http.ask(server.url + path, data or None, dict(request.headers), method)
    return answer.status, answer.json


def test_services_come_and_go_by_signed_requests(serving, key):
    path = "/_sagehen/inference-services/prod"
    given = {
        "s3_bucket": "prod-results",
        "white_list": ["model_a"],
        "require_api_key": False,
        "profile": "modern",
        "when_full": "queue",
        "instance_type": "ml.m5.large",
    }
    assert signed(serving, "GET", path)[0] == 404
    status, made = signed(serving, "PUT", path, given)
    assert (status, made["path"], made["source"]) == (200, "/prod/inference", "api")
    assert made["given"] == {**given, "stage": "prod"}
    assert made["settings"]["limit"] == 1
    assert signed(serving, "PUT", path, given) == (200, made)

    caller = Caller(serving, "")
    body = {"type": "model_a", "parameters": {"do": "wait"}}
    answers = [caller(body=body, stage="prod") for _ in range(3)]
    assert [(status, told["status"]) for status, told in answers] == [
        (202, "InProgress"),
        (202, "Queued"),
        (202, "Queued"),
    ]
    shown = signed(serving, "GET", path)[1]
    assert (shown["active_jobs"], shown["queued_jobs"]) == (1, 2)
    assert signed(serving, "DELETE", path) == (
        200,
        {"stage": "prod", "removed_jobs": 2, "stopped_jobs": 1},
    )
    assert signed(serving, "DELETE", path)[0] == 404
    running = answers[0][1]["jobName"]
    waiter = serving.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=running, WaiterConfig={"Delay": 0.1, "MaxAttempts": 1200})
    assert "prod-results" in [one["Name"] for one in serving.client("s3").list_buckets()["Buckets"]]


def test_the_service_of_the_settings_is_only_shown(serving):
    path = "/_sagehen/inference-services/dev"
    assert signed(serving, "GET", path)[1]["source"] == "settings"
    for method in ("PUT", "DELETE"):
        status, told = signed(serving, method, path, {"s3_bucket": "other"})
        assert status == 409
        assert "sagehen.toml" in told["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "s3_bucket"),
        ([], "JSON object"),
        ({"s3_bucket": "bucket", "limit": 0}, "greater than or equal to 1"),
        ({"s3_bucket": "bucket", "what": 1}, "what"),
        ({"s3_bucket": "bucket", "stage": "dev"}, "the path says"),
    ],
)
def test_a_bad_service_is_refused(serving, body, said):
    status, told = signed(serving, "PUT", "/_sagehen/inference-services/other", body)
    assert (status, said in told["message"]) == (400, True), told


def test_services_are_not_shown_to_who_has_no_keys_of_the_account(serving):
    url = f"{serving.url}/_sagehen/inference-services"
    assert plain_http.ask(url).status == 403


def test_requests_are_counted(serving, ask):
    ask(body={"type": "nothing"})
    metrics = serving.get("/_sagehen/metrics").decode()
    line = 'sagehen_inference_requests_total{outcome="Unsupported",stage="dev",type=""}'
    assert line in metrics


def test_a_start_without_its_section_pauses_the_service(serving, ask):
    """The last test here: it leaves the server without the service."""
    sections = {
        name: serving.settings.pop(name)
        for name in list(serving.settings)
        if name.startswith("SAGEHEN_INFERENCE_SERVICE__")
    }
    assert serving.stop() == 0
    queueing = {**sections, "SAGEHEN_INFERENCE_SERVICE__WHEN_FULL": "queue"}
    serving.settings.update(queueing, SAGEHEN_INFERENCE_SERVICE__LIMIT="1")
    serving.start()
    running, waiting = (ask.start(type="model_wait", parameters={"do": "wait"}) for _ in range(2))
    assert serving.stop() == 0
    for name in sections:
        del serving.settings[name]
    serving.settings.pop("SAGEHEN_INFERENCE_SERVICE__WHEN_FULL")
    serving.start()

    assert ask(body={"type": "model_a"})[0] == 503
    assert [ask.job(name)["status"] for name in (running, waiting)] == ["InProgress", "Queued"]
    status = run_command("status", "--home", serving.home).stdout
    assert "Inference service dev: 1 running, 1 waiting" in status
    command = ("inference-service", "delete", "dev", "--home", serving.home)
    assert "sagehen inference-service delete dev" in status
    assert "1 were waiting and are removed, 1 were running" in run_command(*command).stdout
    assert "There is no inference service at 'dev'" in run_command(*command).stderr
