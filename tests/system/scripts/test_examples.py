"""Every example runs, as its reader would run it, against one real server."""

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

from support.aws_cli import aws_command
from support.server import clean_environment, run_to_its_end
from support.warm import PLAIN, run_script

EXAMPLES = Path(__file__).parents[3] / "examples"
NUMBER = r"\d+\.\d+"
LONGEST_SECONDS = 300
"""On a machine that has much else to do: some import frameworks twice."""
pytestmark = pytest.mark.timeout(LONGEST_SECONDS + 100)


def run_example(name, server, *arguments):
    tools = Path(sys.executable).parent  # where python3 of this environment is
    environment = {**server.env, "PATH": f"{tools}:{os.environ['PATH']}"}
    # A proxy that refuses everything: an example reaches the server and nothing else.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment |= {**nowhere, "NO_PROXY": "127.0.0.1"}
    if name.endswith(".sh"):
        return run_shell(name, environment)
    finished = run_script(EXAMPLES / name, list(arguments), environment, LONGEST_SECONDS)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def run_shell(name, environment):
    with tempfile.TemporaryDirectory() as folder, aws_command(Path(folder), environment):
        path = f"{folder}:{environment['PATH']}"
        environment = {**environment, "PATH": path, "PYTHONPATH": PLAIN}
        return run_to_its_end(["sh", str(EXAMPLES / name)], environment)


@pytest.mark.parametrize("name", ["seed_multi_model.py", "aws_cli.sh"])
def test_multi_model_story_prices_a_house_in_each_city(server, name):
    printed = run_example(name, server)
    for city in ("Houston_TX", "Chicago_IL", "NewYork_NY"):
        assert re.search(rf"{city}\.tar\.gz {NUMBER} USD", printed)


def test_an_asynchronous_endpoint_is_made_as_printed_and_tells_of_itself(server):
    _, *told = run_example("seed_async.py", server).splitlines()[-6:]
    assert told[:2] == ["TestNotification"] * 2
    assert re.fullmatch(rf"Price: {NUMBER}", told[2])
    assert told[3:] == [
        "InferenceResult: Completed",
        "InferenceResult: Failed, ClientError: Received client error (415) from model. See the "
        "SageMaker Endpoint logs in your account for more information. (Loading csv data failed "
        "with Exception, please ensure data is in csv format:)",
    ]


def test_an_asynchronous_endpoint_scales_from_zero(server):
    """By its alarms alone it does so in `test_control_scaling.py`, where time is made to pass."""
    printed = run_example("seed_async_autoscaling.py", server, "--hurry").splitlines()
    assert printed[0] == "Instances: 0"
    assert re.fullmatch(rf"Price: {NUMBER}", printed[1])
    assert printed[2:] == [
        "Setting desired instance count to 1.",
        "monitor alarm step_scaling_policy_alarm_name in state ALARM triggered policy "
        "HasBacklogWithoutCapacity-ScalingPolicy",
        "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker.",
        "Instances: 1",
    ]


def test_a_multi_model_endpoint_scales_with_all_its_models(server):
    """By its alarms alone it does so in `test_control_scaling.py`, where time is made to pass."""
    printed = run_example("seed_multi_model_autoscaling.py", server, "--hurry").splitlines()
    assert printed[0] == "Instances: 1"
    for city, line in zip(("Chicago_IL", "Houston_TX", "LosAngeles_CA"), printed[1:4], strict=True):
        assert re.fullmatch(rf"{city}: \[{NUMBER}\]", line)
    assert printed[4:] == [
        "Setting desired instance count to 3.",
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker.",
        "Instances: 3",
    ]


def test_sdk_v2_deploys_one_model(server):
    printed = run_example("sdk_v2_single.py", server)
    assert re.search(rf"One house: +\[\['{NUMBER}'\]\]", printed)
    assert re.search(rf"Two houses: +\[\['{NUMBER}', '{NUMBER}'\]\]", printed)


def test_sdk_v2_deploys_many_models(server):
    printed = run_example("sdk_v2_multi_model.py", server)
    assert re.search(
        rf"Chicago_IL\.tar\.gz \[{NUMBER}\]\s+Houston_TX\.tar\.gz \[{NUMBER}\]", printed
    )


def test_any_python_names_languages(server):
    printed = run_example("boto3_inference_py.py", server)
    assert [line[:2] for line in printed.splitlines()] == ["en", "de", "fr"]


def test_a_story_is_told_word_by_word(server):
    printed = run_example("boto3_response_stream.py", server)
    assert printed == "Sagehens dance at dawn and go back to work \n"


def test_sklearn_names_wines(server):
    assert "named rightly" in run_example("sklearn_wine.py", server)


def test_lightgbm_foretells_diabetes(server):
    assert "patients: off by" in run_example("lightgbm_diabetes.py", server)


def test_onnx_names_samples(server):
    assert "named rightly" in run_example("onnx_cancer.py", server)


def test_tensorflow_reads_digits(server):
    assert "read rightly" in run_example("tensorflow_digits.py", server)


def test_sdk_v2_deploys_a_pipeline(server):
    printed = run_example("pipeline_sdk_v2.py", server)
    assert "5 houses priced through both containers as by both models here" in printed


def test_a_hierarchy_of_models_names_digits(server):
    printed = run_example("hierarchy.py", server)
    right, asked = re.search(r"(\d+) of (\d+) digits named rightly", printed).groups()
    assert int(right) > 0.9 * int(asked)


def test_two_frameworks_answer_side_by_side(server):
    printed = run_example("direct_containers.py", server)
    assert printed.startswith("words: 5 bedrooms and 1.5 bathrooms on 1.62 acres, built in 1994\n")
    assert re.search(rf"^price: {NUMBER}$", printed, re.MULTILINE)


def test_pytorch_reads_digits(server):
    assert re.search(r"^4[3-5]\d of 450 held-out digits", run_example("pytorch_digits.py", server))


def test_hugging_face_finds_the_answer(server):
    question, best, *_ = run_example("huggingface_embeddings.py", server).splitlines()[-4:]
    assert question == "How do I get my money back?"
    assert best.endswith("Refunds are paid to the card you used within five days.")


def test_a_long_job_is_killed_half_way_and_goes_on():
    script = EXAMPLES / "long_job" / "main.py"
    finished = run_script(script, ["--quick"], clean_environment(), LONGEST_SECONDS)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert '"status": "Completed"' in finished.stdout
    before = re.search(r"24 lines; (\d+) of them were not done again", finished.stdout)
    assert 0 < int(before[1]) < 24
    assert "Subject: Inference job sentence-search-job-" in finished.stdout


def test_a_template_is_applied_changed_and_taken_away(server):
    printed = run_example("apply_template.py", server)
    text = "Die Henne und der Hahn, der Hof und der Hund"
    assert [line for line in printed.splitlines() if line.startswith(text)] == [
        f"{text} — as in 'der'",
        f"{text} — as in 'und'",
    ]
    assert "Plan: 7 to create." in printed
    assert "The stack languages was deleted." in printed


def test_every_example_is_listed_and_tested():
    listed = (EXAMPLES / "README.md").read_text()
    readme = EXAMPLES.parent / "tests" / "docs" / "test_readme.py"  # runs the first one
    tested = Path(__file__).read_text() + readme.read_text()
    for example in EXAMPLES.glob("*.*"):
        if example.suffix in (".py", ".sh") and example.name != "common.py":
            assert f"]({example.name})" in listed
            assert f'"{example.name}"' in tested


def test_example_does_not_run_against_aws_by_mistake():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    finished = run_script(EXAMPLES / "seed_multi_model.py", [], clean, 60)
    assert finished.returncode == 1
    assert "sagehen up" in finished.stderr
