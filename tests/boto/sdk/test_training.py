"""Training jobs by the unmodified SageMaker Python SDK, version 2: estimators with a script."""

import io
import json
import os
import tarfile
import time
from types import SimpleNamespace

import pytest

from support.deploy import ROLE
from support.namespaces import may_unshare_network
from support.server import eventually

BUCKET = "sdk-training"
DATA = "1,2\n2,4\n3,6\n"
# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")

TRAIN = """
import argparse, os, pathlib
import joblib, numpy
from sklearn.linear_model import LinearRegression

parser = argparse.ArgumentParser()
parser.add_argument("--factor", type=float)
parser.add_argument("--note")
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
given = parser.parse_args()
rows = numpy.loadtxt(pathlib.Path(given.train) / "data.csv", delimiter=",")
model = LinearRegression().fit(rows[:, :1], rows[:, 1] * given.factor)
joblib.dump(model, pathlib.Path(given.model_dir) / "model.joblib")
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "note.txt").write_text(given.note)
print("train_loss: 0.25;")
"""
INFERENCE = """
import os, joblib

def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))
"""
SAY = """
import json, os, sys
said = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "variables": {name: text for name, text in os.environ.items() if name.startswith("SM_")},
}
with open(os.path.join(os.environ["SM_MODEL_DIR"], "said.json"), "w") as file:
    json.dump(said, file)
"""
GOES_ON = """
import os, pathlib, sys, time
kept = pathlib.Path("/opt/ml/checkpoints" if os.path.isdir("/opt/ml/checkpoints")
                    else os.path.join(os.environ["SM_MODEL_DIR"], "../checkpoints"))
before = sorted(file.name for file in kept.iterdir())
(kept / f"step-{len(before)}").write_text("1")
pathlib.Path(os.environ["SM_MODEL_DIR"], "before").write_text(",".join(before))
"""


@pytest.fixture(scope="module")
def session(sdk, aws):
    import sagemaker.estimator
    import sagemaker.exceptions
    import sagemaker.inputs
    import sagemaker.pytorch
    import sagemaker.session
    import sagemaker.sklearn
    import sagemaker.xgboost

    aws.client("s3").create_bucket(Bucket=BUCKET)
    aws.client("s3").put_object(Bucket=BUCKET, Key="in/data.csv", Body=DATA.encode())
    # It looks for ends and logs each 5, 10 or 30 s: its clock is a hundred times as fast.
    clock = SimpleNamespace(
        time=lambda: 100 * time.time(), sleep=lambda seconds: time.sleep(seconds / 100)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sagemaker.session, "time", clock)
        yield sdk.Session(default_bucket=BUCKET)


@pytest.fixture
def source(tmp_path):
    """Makes a folder of scripts."""

    def make(**files):
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_dot_", ".")).write_text(text)
        return str(folder)

    return make


@pytest.fixture
def usual(session):
    """What every estimator is given."""
    return {
        "role": ROLE,
        "instance_count": 1,
        "instance_type": "ml.m5.large",
        "sagemaker_session": session,
    }


def run(estimator, inputs=None):
    """To its end."""
    estimator.fit(inputs, logs=False)


def read_archive(aws, uri):
    """The texts in an archive, by name."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        files = [member for member in archive if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in files}


def test_a_model_is_trained_deployed_and_asked(sdk, session, source, usual, aws, capsys):
    estimator = sdk.sklearn.SKLearn(
        entry_point="train.py",
        source_dir=source(train_dot_py=TRAIN),
        framework_version="1.2-1",
        hyperparameters={"factor": 2, "note": "two words"},
        metric_definitions=[{"Name": "loss", "Regex": r"train_loss: ([0-9.]+)"}],
        **usual,
    )
    estimator.fit({"train": f"s3://{BUCKET}/in"})  # which waits, and shows the log
    shown = capsys.readouterr().out
    assert "train.py --factor 2 --note two words" in shown
    assert "train_loss: 0.25;" in shown
    assert "Training seconds: " in shown
    name = estimator.latest_training_job.name
    assert estimator.model_data == f"s3://{BUCKET}/{name}/output/model.tar.gz"
    assert list(read_archive(aws, estimator.model_data)) == ["model.joblib"]
    output = read_archive(aws, f"s3://{BUCKET}/{name}/output/output.tar.gz")
    assert output == {"note.txt": b"two words"}
    described = session.describe_training_job(name)
    assert [metric["MetricName"] for metric in described["FinalMetricDataList"]] == ["loss"]
    assert described["FinalMetricDataList"][0]["Value"] == 0.25

    predictor = estimator.deploy(
        1,
        "ml.m5.large",
        entry_point="inference.py",
        source_dir=source(inference_dot_py=INFERENCE),
        model_server_workers=1,  # each of which imports scikit-learn
        wait=False,
    )
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    assert predictor.predict([[10.0]]).tolist() == pytest.approx([40.0])
    predictor.delete_endpoint()


def test_a_script_is_told_all_that_the_toolkit_tells(sdk, source, usual, aws):
    estimator = sdk.pytorch.PyTorch(
        entry_point="say.py",
        source_dir=source(say_dot_py=SAY),
        framework_version="2.3",
        py_version="py311",
        hyperparameters={"epochs": 3, "rate": 0.5, "deep": {"a": [1]}, "text": "x y", "on": True},
        **usual,
    )
    run(estimator, {"train": f"s3://{BUCKET}/in", "test": f"s3://{BUCKET}/in"})
    said = json.loads(read_archive(aws, estimator.model_data)["said.json"])
    assert said["arguments"] == [
        *("--deep", "a=[1]"),
        *("--epochs", "3"),
        *("--on", "True"),
        *("--rate", "0.5"),
        *("--text", "x y"),
    ]
    variables = said["variables"]
    assert variables["SM_CHANNELS"] == '["test","train"]'
    assert variables["SM_HP_RATE"] == "0.5"
    assert variables["SM_MODULE_NAME"] == "say"
    assert variables["SM_HOSTS"] == '["algo-1"]'
    described = json.loads(variables["SM_TRAINING_ENV"])
    assert described["job_name"] == estimator.latest_training_job.name
    assert described["module_dir"].startswith(f"s3://{BUCKET}/")
    assert said["folder"] == os.path.dirname(variables["SM_MODEL_DIR"]) + "/code"


def test_a_shell_script_of_an_image_of_ones_own(sdk, source, usual, aws):
    estimator = sdk.estimator.Estimator(
        image_uri="000000000000.dkr.ecr.us-east-1.amazonaws.com/mine:1",
        entry_point="run.sh",
        source_dir=source(run_dot_sh='echo "$@" > $SM_MODEL_DIR/said\n'),
        hyperparameters={"a": 1},
        environment={"MINE": "1"},
        **usual,
    )
    run(estimator)
    assert read_archive(aws, estimator.model_data) == {"said": b"-a 1\n"}


def test_a_spot_job_goes_on_from_its_checkpoints(sdk, session, source, usual, aws):
    def train():
        estimator = sdk.xgboost.XGBoost(
            entry_point="go_on.py",
            source_dir=source(go_on_dot_py=GOES_ON),
            framework_version="1.7-1",
            checkpoint_s3_uri=f"s3://{BUCKET}/checkpoints",
            use_spot_instances=True,
            max_run=60,
            max_wait=120,
            **usual,
        )
        run(estimator)
        return read_archive(aws, estimator.model_data)["before"], estimator

    assert train()[0] == b""
    before, estimator = train()
    assert before == b"step-0"
    described = session.describe_training_job(estimator.latest_training_job.name)
    assert described["EnableManagedSpotTraining"] is True
    assert described["BillableTimeInSeconds"] <= described["TrainingTimeInSeconds"]


@may_unshare_network
def test_code_comes_by_a_channel_where_there_is_no_network(sdk, source, usual, aws):
    estimator = sdk.sklearn.SKLearn(
        entry_point="say.py",
        source_dir=source(say_dot_py=SAY),
        framework_version="1.2-1",
        enable_network_isolation=True,
        **usual,
    )
    run(estimator)
    said = json.loads(read_archive(aws, estimator.model_data)["said.json"])
    assert json.loads(said["variables"]["SM_CHANNELS"]) == ["code"]


def test_a_script_that_fails_says_why(sdk, session, source, usual):
    estimator = sdk.sklearn.SKLearn(
        entry_point="bad.py",
        source_dir=source(bad_dot_py="raise ValueError('no such luck')\n"),
        framework_version="1.2-1",
        hyperparameters={"epochs": 3},
        **usual,
    )
    with pytest.raises(sdk.exceptions.UnexpectedStatusException) as raised:
        estimator.fit(wait=True, logs=False)
    reason = session.describe_training_job(estimator.latest_training_job.name)["FailureReason"]
    assert reason in str(raised.value)
    assert reason.startswith(
        "AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n"
        'ErrorMessage "ValueError: no such luck (bad.py, line 1)"'
    )
    assert reason.endswith('bad.py --epochs 3", exit code: 1')


def test_an_entry_point_that_is_not_there_is_refused_before_it_runs(session, sdk, usual, aws):
    aws.client("s3").put_object(Bucket=BUCKET, Key="code/empty.tar.gz", Body=_packed("other.py"))
    estimator = sdk.estimator.Estimator(
        image_uri="000000000000.dkr.ecr.us-east-1.amazonaws.com/mine:1",
        entry_point="train.py",
        source_dir=f"s3://{BUCKET}/code/empty.tar.gz",
        **usual,
    )
    with pytest.raises(sdk.exceptions.UnexpectedStatusException, match="There is no script 'train"):
        run(estimator)


def test_a_job_is_stopped_and_what_it_wrote_is_kept(sdk, session, source, usual, aws):
    script = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        "    open(os.environ['SM_MODEL_DIR'] + '/half', 'w').write('half')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('running', flush=True)\n"
        "time.sleep(100)\n"
    )
    estimator = sdk.sklearn.SKLearn(
        entry_point="slow.py",
        source_dir=source(slow_dot_py=script),
        framework_version="1.2-1",
        **usual,
    )
    estimator.fit(wait=False)
    job = estimator.latest_training_job
    log = aws.home / "logs" / "training-jobs" / job.name / "algo-1.log"
    eventually(lambda: log.exists() and "running" in log.read_text())
    job.stop()
    # The SDK takes Stopping for an end.
    waiter = session.sagemaker_client.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=job.name, WaiterConfig={"Delay": 0.1, "MaxAttempts": 1200})
    assert session.describe_training_job(job.name)["TrainingJobStatus"] == "Stopped"
    attached = sdk.sklearn.SKLearn.attach(job.name, sagemaker_session=session)
    assert read_archive(aws, attached.model_data) == {"half": b"half"}


def _packed(name):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return raw.getvalue()
