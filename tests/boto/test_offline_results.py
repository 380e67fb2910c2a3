"""Endpoints that answer from results computed in advance: a real server, boto3 and S3."""

import json
import re
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from support.cli import run_command
from support.deploy import IMAGE, ROLE
from support.server import eventually

V = "SAGEHEN_OFFLINE_RESULTS"
HEADER = "x-sagehen-offline-result"


class Offline:
    """Endpoints with offline results on one server."""

    def __init__(self, deployer) -> None:
        self.deployer = deployer
        self.s3, self.sagemaker = deployer.s3, deployer.sagemaker
        self.s3.create_bucket(Bucket="results")

    def put(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket="results", Key=key, Body=text.encode())

    def only(self, name: str, prefix: str, **variables: str) -> dict:
        """An endpoint without a model, waited for."""
        self.config(name, prefix, **{"ONLY": "true", **variables})
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return self.deployer.settled(name)

    def config(self, name: str, prefix: str, **variables: str) -> None:
        source = prefix if prefix.startswith("s3://") else f"s3://results/{prefix}"
        environment = {V: source, f"{V}_KEY": "0"}
        environment |= {f"{V}_{variable}": value for variable, value in variables.items()}
        self.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def ask(self, name: str, body: str, content_type: str = "text/csv") -> str:
        """The answer, which must come from offline results."""
        answer = self.deployer.runtime.invoke_endpoint(
            EndpointName=name, Body=body, ContentType=content_type
        )
        assert answer["ResponseMetadata"]["HTTPHeaders"][HEADER] == "true"
        assert answer["InvokedProductionVariant"] == "AllTraffic"
        return answer["Body"].read().decode()

    def own(self, path: str, method: str = "GET") -> dict:
        server = self.deployer.server
        request = urllib.request.Request(
            f"{server.url}/_sagehen/offline-results{path}", method=method, headers=server.bearer
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def store(self, name: str) -> dict:
        (described,) = self.own(f"/{name}")["offline_results"]
        return described


@pytest.fixture(scope="module")
def offline(deploy) -> Offline:
    return Offline(deploy)


def test_an_endpoint_without_a_model_answers_from_a_jobs_output(offline) -> None:
    offline.put("csv/part-0.csv.out", "a,0.1\nb,0.2\n")
    offline.put("csv/part-1.csv.out", 'c,0.3\n"d,e",0.4\na,0.5\n')
    offline.put("csv/part-1.csv.errors.jsonl", '{"row": 3}\n')
    described = offline.only("csv", "csv/")
    assert described["EndpointStatus"] == "InService"
    (variant,) = described["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 0)
    assert offline.ask("csv", "b,1,2,3") == "0.2\n"
    assert offline.ask("csv", 'a\n"d,e"\nc\n') == "0.5\n0.4\n0.3\n"
    with pytest.raises(ClientError, match=r"Endpoint csv has no instance") as raised:
        offline.ask("csv", "f")
    assert raised.value.response["Error"]["Code"] == "ServiceUnavailable"
    store = offline.store("csv")
    assert (store["state"], store["keys"], store["rows"], store["failure"]) == ("Ready", 4, 5, None)
    assert store["bytes"] > 0


def test_json_lines_are_found_by_a_field(offline) -> None:
    lines = [{"id": number, "x": [1, 2], "SageMakerOutput": {"s": number / 2}} for number in (7, 8)]
    offline.put("json/in.jsonl.out", "\n".join(map(json.dumps, lines)))
    offline.only("json", "json/", KEY="id", ANSWER="SageMakerOutput")
    one = offline.ask("json", '{"id": "8", "x": []}', "application/json")
    assert json.loads(one) == {"s": 4.0}
    both = offline.ask("json", '[{"id": 8}, {"id": 7}]', "application/json")
    assert json.loads(both) == [{"s": 4.0}, {"s": 3.5}]
    rows = offline.ask("json", '{"id": 8}\n{"id": 7}\n', "application/jsonlines")
    assert rows == '{"s": 4.0}\n{"s": 3.5}\n'


def test_only_known_types_are_given_to_who_asks_for_a_type(offline) -> None:
    offline.put("types/out", "a,1\n")
    offline.only("types", "types/")
    runtime = offline.deployer.runtime
    asked = {"EndpointName": "types", "Body": "a", "ContentType": "text/csv"}
    assert runtime.invoke_endpoint(**asked, Accept="text/csv")["Body"].read() == b"1\n"
    with pytest.raises(ClientError, match="has no instance"):
        runtime.invoke_endpoint(**asked, Accept="application/json")
    with pytest.raises(ClientError, match="has no instance"):
        runtime.invoke_endpoint_with_response_stream(**asked)


def test_a_refresh_reads_the_objects_again(offline) -> None:
    offline.put("fresh/one.out", "a,old\n")
    offline.only("fresh", "fresh/")
    before = offline.store("fresh")
    offline.put("fresh/one.out", "a,new\nb,new\n")
    assert offline.ask("fresh", "a") == "old\n"
    assert offline.own("/fresh/refresh", "POST") == {"refreshing": ["AllTraffic"]}
    eventually(lambda: offline.ask("fresh", "a") == "new\n")
    assert offline.ask("fresh", "b") == "new\n"
    eventually(lambda: offline.store("fresh")["state"] == "Ready")
    after = offline.store("fresh")
    assert (after["keys"], before["keys"]) == (2, 1)
    assert offline.deployer.status("fresh") == "InService"


def test_a_refresh_that_fails_leaves_the_old_results(offline) -> None:
    offline.put("stale/one.out", "a,old\n")
    offline.only("stale", "stale/", KEY="1", ANSWER="0")
    offline.put("stale/one.out", "a,old\nnothing else\n")
    offline.own("/stale/refresh", "POST")
    eventually(lambda: offline.store("stale")["state"] == "Failed")
    store = offline.store("stale")
    assert store["failure"] == (
        "s3://results/stale/one.out, row 2: it has no column 1, only 1 columns."
    )
    assert store["keys"] == 1
    assert offline.ask("stale", "x,old") == "a\n"
    offline.put("stale/one.out", "a,new\n")
    offline.own("/stale/refresh", "POST")
    eventually(lambda: offline.store("stale")["state"] == "Ready")
    assert offline.ask("stale", "x,new") == "a\n"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("absent", "", "There are no results: no object below s3://results/absent/ has any bytes."),
        ("short", "a,1\nb\n", "s3://results/short/out, row 2: it has no column 1, only 1 columns."),
    ],
)
def test_an_endpoint_whose_results_cannot_be_used_fails(offline, name, text, reason) -> None:
    offline.put(f"{name}/out", text)
    described = offline.only(name, f"{name}/", ANSWER="1")
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"] == (
        f"The offline results of variant AllTraffic cannot be used: {reason}"
    )


def test_an_endpoint_without_a_bucket_fails(offline) -> None:
    described = offline.only("no-bucket", "s3://no-such-bucket/")
    assert described["EndpointStatus"] == "Failed"
    assert "no-such-bucket" in described["FailureReason"]


def test_an_update_reads_the_objects_again_and_falls_back_if_they_are_broken(offline) -> None:
    offline.put("update/one.out", "a,old\n")
    offline.only("update", "update/")
    offline.put("update/one.out", "a,new\n")
    offline.config("update-2", "update/", ONLY="true")
    offline.sagemaker.update_endpoint(EndpointName="update", EndpointConfigName="update-2")
    assert offline.deployer.settled("update")["EndpointConfigName"] == "update-2"
    eventually(lambda: offline.ask("update", "a") == "new\n")
    offline.config("update-3", "update-3/", ONLY="true")
    offline.sagemaker.update_endpoint(EndpointName="update", EndpointConfigName="update-3")
    described = offline.deployer.settled("update")
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == (
        "InService",
        "update-2",
    )
    assert "There are no results" in described["FailureReason"]
    assert offline.ask("update", "a") == "new\n"


def test_a_variant_without_a_model_gets_no_instances(offline) -> None:
    offline.put("none/one.out", "a,1\n")
    offline.only("none", "none/")
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}
    with pytest.raises(ClientError, match="runs no model") as raised:
        offline.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="none", DesiredWeightsAndCapacities=[change]
        )
    assert raised.value.response["Error"]["Code"] == "ValidationException"


def test_a_model_whose_process_ends_with_each_request_is_down(offline) -> None:
    offline.put("crash/all.csv", "a,7\n")
    script = "import os\ndef model_fn(d): return 1\ndef predict_fn(data, model): os._exit(3)\n"
    variables = {V: "s3://results/crash/", f"{V}_KEY": "0"}
    assert offline.deployer.endpoint("crash", script, variables)["EndpointStatus"] == "InService"
    for _ in range(3):
        assert offline.ask("crash", "a,1") == "7\n"
    with pytest.raises(ClientError, match="The worker process of the model's code"):
        offline.ask("crash", "b,1")


def test_answers_are_counted(offline) -> None:
    offline.put("count/one.out", "a,1\n")
    offline.only("count", "count/")
    for _ in range(3):
        offline.ask("count", "a")
    line = b'sagehen_offline_results_total{endpoint="count",variant="AllTraffic"} 3.0'
    eventually(lambda: line in offline.deployer.server.get("/_sagehen/metrics"))


def test_stores_go_with_their_endpoint(offline) -> None:
    offline.put("gone/one.out", "a,1\n")
    offline.only("gone", "gone/")
    folder = offline.deployer.server.home / "offline-results"
    before = set(folder.iterdir())
    offline.sagemaker.delete_endpoint(EndpointName="gone")
    eventually(lambda: len(set(folder.iterdir())) < len(before))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        offline.own("/gone")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        offline.own("/gone/refresh", "POST")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({V: "results"}, "SAGEHEN_OFFLINE_RESULTS is 'results'"),
        ({f"{V}_KEY": "$[0]"}, "SAGEHEN_OFFLINE_RESULTS_KEY: '\\$\\[0\\]' selects nothing"),
        ({f"{V}_COLUMN": "0"}, "There is no variable SAGEHEN_OFFLINE_RESULTS_COLUMN"),
    ],
)
def test_what_is_wrong_with_the_variables_is_said_at_create_model(
    offline, variables, message
) -> None:
    environment = {V: "s3://results/x", f"{V}_KEY": "0"} | variables
    with pytest.raises(ClientError, match=message) as raised:
        offline.sagemaker.create_model(
            ModelName="wrong",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
    assert raised.value.response["Error"]["Code"] == "ValidationException"


DOUBLE_LINES = """
def model_fn(model_dir):
    return 2.0

def input_fn(body, content_type):
    text = body if isinstance(body, str) else body.decode()
    return [float(line) for line in text.split()]

def predict_fn(data, model):
    return [number * model for number in data]

def output_fn(prediction, accept):
    return "".join(f"{number}\\n" for number in prediction), "text/csv"
"""


def test_a_transform_jobs_output_answers(offline) -> None:
    """The whole way: input, a batch transform that joins it, and an endpoint over the output."""
    offline.put("in/a.csv", "ana,1\nbo,2\n")
    offline.put("in/b.csv", "cy,3\n")
    offline.deployer.model("doubling", DOUBLE_LINES)
    offline.sagemaker.create_transform_job(
        TransformJobName="nightly",
        ModelName="doubling",
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://results/in/"}},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        TransformOutput={
            "S3OutputPath": "s3://results/nightly/",
            "AssembleWith": "Line",
            "Accept": "text/csv",
        },
        DataProcessing={"InputFilter": "$[1:]", "JoinSource": "Input", "OutputFilter": "$[0,-1]"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )

    def has_ended() -> bool:
        described = offline.sagemaker.describe_transform_job(TransformJobName="nightly")
        status = described["TransformJobStatus"]
        assert status in ("InProgress", "Completed"), described
        return status == "Completed"

    eventually(has_ended)
    offline.only("nightly", "nightly/")
    assert offline.ask("nightly", "cy,9\nana,9\n") == "6.0\n2.0\n"


def test_the_command_lists_describes_and_refreshes_them(offline, aws) -> None:
    def command(*words):
        return run_command("offline-results", *words, "--home", aws.home)

    offline.put("shown/one.out", "a,1\nbroken\nb,2\n")
    offline.only("shown", "shown/", ANSWER="1", MAX_BROKEN_ROWS="1")
    listed = command("list").stdout
    assert re.search(r"^shown +AllTraffic +Ready +2 +1 ", listed, re.MULTILINE), listed
    described = command("describe", "shown").stdout
    assert "  Rows left out: 1\n" in described
    assert "    s3://results/shown/one.out, row 2: it has no column 1" in described
    (store,) = json.loads(command("describe", "shown", "--json").stdout)
    assert (store["keys"], store["broken_rows"], store["max_broken_rows"]) == (2, 1, "1")
    assert store in json.loads(command("list", "--json").stdout)

    offline.put("shown/one.out", "a,3\n")
    refreshed = command("refresh", "shown", "--wait")
    assert refreshed.status == 0, refreshed.stderr
    assert "shown, variant AllTraffic: Ready\n" in refreshed.stdout
    assert offline.store("shown")["keys"] == 1
    offline.put("shown/one.out", "a\nb\n")
    refused = command("refresh", "shown", "--wait")
    assert refused.status == 1
    assert "2 rows cannot be read, more than the 1" in refused.stdout
    missing = command("describe", "missing")
    assert (missing.status, "no endpoint 'missing' with offline results" in missing.stderr) == (
        1,
        True,
    )
