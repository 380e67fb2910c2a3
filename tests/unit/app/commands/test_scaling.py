"""`sagehen scaling simulate`."""

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from sagehen.app.commands.scaling import read_loads, scaling_app
from sagehen.app.commands.scaling_report import plot
from sagehen.base.errors import Invalid

TRACKING = {
    "PolicyName": "per-instance",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": 1000,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
        },
    },
}
STEP = {
    "PolicyType": "StepScaling",
    "StepScalingPolicyConfiguration": {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
        "Cooldown": 0,
    },
    "Alarm": {
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "EvaluationPeriods": 2,
    },
}


@pytest.fixture
def run(tmp_path):
    def run(*policies, load="100\n" * 5 + "4000\n" * 10, arguments=()):
        (tmp_path / "load.csv").write_text(load)
        given = ["--load", str(tmp_path / "load.csv"), *arguments]
        for number, policy in enumerate(policies):
            path = tmp_path / f"policy{number}.json"
            path.write_text(policy if isinstance(policy, str) else json.dumps(policy))
            given += ["--policy", str(path)]
        return CliRunner().invoke(scaling_app, ["simulate", *given])

    return run


def test_changes_plots_and_costs_are_printed(run):
    result = run(TRACKING)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["Time", "Load", "Each", "Running", "Change"]
    assert lines[1].split()[:4] == ["0:08:00", "4000", "4000", "1"]
    assert "1 → 4, policy per-instance: The metric is 4000, above the threshold 1000" in lines[1]
    assert "Load of each minute" in lines
    assert lines[-4:] == [
        "Instance hours: 0.60; 2.50 with 10 instances all the time (24%)",
        "Changes of the desired count: 1",
        "Highest load of one instance in a minute: 4000",
        "Minutes above the target 1000 of policy per-instance: 4 of 15",
    ]


def test_a_step_policy_is_simulated_with_its_alarm(run):
    result = run(STEP, arguments=["--json", "--max", "3"])
    moments = json.loads(result.stdout)["moments"]
    changes = [moment for moment in moments if moment["event"]]
    assert [(moment["seconds"], moment["desired"]) for moment in changes] == [(120, 3)]


def test_a_load_that_changes_nothing_says_so(run):
    assert run(TRACKING, load="load\n1\n2\n").stdout.startswith("Nothing was scaled.\n")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a JSON object"),
        ({**STEP, "Alarm": None}, "Give it as `Alarm`"),
        ({**STEP, "Alarm": {"Threshold": 1}}, "lacks a parameter"),
        ({"PolicyType": "PredictiveScaling"}, "cannot be simulated"),
        ({**TRACKING, "TargetTrackingScalingPolicyConfiguration": {"TargetValue": 0}}, "TargetVal"),
    ],
)
def test_policies_that_cannot_be_simulated_are_refused(run, policy, reason):
    result = run(policy)
    assert result.exit_code != 0
    assert reason in " ".join(result.output.split())


class Recorded:
    """CloudWatch with invocations of the last minutes, one page of a day at a time."""

    def __init__(self, *ago):
        self.ago = ago
        self.asked = []

    def client(self, name):
        assert name == "cloudwatch"
        return self

    def get_metric_statistics(self, **params):
        self.asked.append(params)
        start, end = params["StartTime"], params["EndTime"]
        points = [
            {"Timestamp": moment, "Sum": 60.0 * minutes}
            for minutes in self.ago
            if start <= (moment := self.now - timedelta(minutes=minutes)) < end
        ]
        return {"Datapoints": points}

    @property
    def now(self):
        return max(params["EndTime"] for params in self.asked)


def test_recorded_invocations_are_replayed(monkeypatch, tmp_path):
    recorded = Recorded(1, 3, 5)
    monkeypatch.setattr("sagehen.apply.client.connect_home", lambda *_: recorded)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(TRACKING))
    arguments = ["simulate", "--endpoint", "e/v", "--policy", str(policy), "--hours", "1", "--json"]
    result = CliRunner().invoke(scaling_app, arguments)
    assert result.exit_code == 0, result.output
    loads = [moment["load"] for moment in json.loads(result.stdout)["moments"]]
    assert loads == [300, 0, 180, 0, 60]
    (asked,) = recorded.asked
    assert (asked["MetricName"], asked["Period"]) == ("Invocations", 60)
    assert {one["Name"]: one["Value"] for one in asked["Dimensions"]} == {
        "EndpointName": "e",
        "VariantName": "v",
    }
    empty = Recorded()
    monkeypatch.setattr("sagehen.apply.client.connect_home", lambda *_: empty)
    result = CliRunner().invoke(scaling_app, arguments)
    assert "No invocations of e/v are recorded" in " ".join(result.output.split())


@pytest.mark.parametrize("text", ["", "1\nx\n", "0,1\n1,\n2,3\n", "-1\n", "inf\n", "nan\n"])
def test_loads_that_are_none_are_refused(tmp_path, text):
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(Invalid):
        read_loads(path)


def test_the_last_column_is_the_load(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("time,load\n0,1\n1,2.5\n\n")
    assert read_loads(path) == (1, 2.5)


def test_a_plot_has_the_highest_of_what_shares_a_column():
    rows = list(plot([0, 8, 0, 1, 0, 0], 3))
    assert len(rows) == 8
    assert rows[0] == f"{'8':>10} █"
    assert rows[-1] == f"{'0':>10} ██"
