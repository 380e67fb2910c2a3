"""`sagehen scaling`: simulates scaling policies, with the functions by which the server decides."""

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from sagehen.app.commands.output import json_text, print_line
from sagehen.app.commands.scaling_report import report
from sagehen.base.errors import Invalid
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

__all__ = ["scaling_app"]

scaling_app = typer.Typer(help="Simulate scaling policies.", no_args_is_help=True)

LONGEST_SIMULATION_MINUTES = 31 * 1440
_PAGE_MINUTES = 1440


@scaling_app.callback()
def _scaling() -> None:
    """Keeps `simulate` a command of its own."""


@scaling_app.command()
def simulate(
    policy: Annotated[
        list[Path],
        typer.Option(
            help="A file with the parameters of PutScalingPolicy, as JSON; for a step policy with "
            "those of its alarm as `Alarm`. Repeatable."
        ),
    ],
    load: Annotated[
        Path | None,
        typer.Option(help="A CSV file whose last column is the load of each minute in turn."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="ENDPOINT/VARIANT", help="Replay the recorded invocations of this variant."
        ),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.1, help="How far back to replay.")] = 24,
    minimum: Annotated[int, typer.Option("--min", min=0, help="MinCapacity.")] = 1,
    maximum: Annotated[int, typer.Option("--max", min=1, help="MaxCapacity.")] = 10,
    initial: Annotated[
        int | None, typer.Option(min=0, help="The count at the start; MinCapacity by default.")
    ] = None,
    start_seconds: Annotated[
        float, typer.Option(min=0, help="How long new instances take to serve.")
    ] = 60,
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Replay a load through scaling policies; print what changes, a plot and the cost."""
    from sagehen.services.autoscaling import simulation

    with plain_errors():
        if (load is None) == (endpoint is None):
            raise Invalid("Give one of --load and --endpoint.")
        if minimum > maximum:
            raise Invalid(f"--min {minimum} is greater than --max {maximum}.")
        simulated = simulation.Simulation(
            policies=tuple(read_policy(path) for path in policy),
            loads=read_loads(load) if load else _recorded(endpoint or "", hours, home, config),
            minimum=minimum,
            maximum=maximum,
            initial=min(max(minimum if initial is None else initial, minimum), maximum),
            start_seconds=start_seconds,
        )
        result = simulation.simulate(simulated)
        for line in [json_text(_as_dict(result))] if as_json else report(simulated, result):
            print_line(line)


def read_loads(path: Path) -> tuple[float, ...]:
    """Reads the last column of a CSV file; a first line without a number is a heading."""
    try:
        with path.open(newline="") as file:
            cells = [row[-1].strip() for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"{path} cannot be read: {error}") from error
    loads = []
    for number, cell in enumerate(cells, 1):
        try:
            value = float(cell)
        except ValueError:
            if number == 1:
                continue
            raise Invalid(
                f"{path}, line {number}: {cell!r} is not a number. A minute without data cannot "
                "be simulated; where nobody called, the load is 0."
            ) from None
        if not 0 <= value < float("inf"):
            raise Invalid(f"{path}, line {number}: a load is a number from 0 on, not {cell}.")
        loads.append(value)
    return _checked(tuple(loads), str(path))


def _checked(loads: tuple[float, ...], source: str) -> tuple[float, ...]:
    if not 1 <= len(loads) <= LONGEST_SIMULATION_MINUTES:
        raise Invalid(
            f"{source} has {len(loads)} minutes of load; 1 to {LONGEST_SIMULATION_MINUTES} can be "
            "simulated."
        )
    return loads


def read_policy(path: Path) -> Any:
    """Returns the `SimulatedPolicy` of a file; raises Invalid."""
    try:
        params = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from error
    if not isinstance(params, dict):
        raise Invalid(f"{path} is not a JSON object with the parameters of PutScalingPolicy.")
    return _simulated(path, params)


def _simulated(path: Path, params: Mapping[str, Any]) -> Any:
    from sagehen.services.autoscaling.policies.facts import read_configuration
    from sagehen.services.autoscaling.simulated_alarms import step_alarm, tracking_alarms
    from sagehen.services.autoscaling.simulation import SimulatedPolicy
    from sagehen.services.autoscaling.validation import check_policy
    from sagehen.wire.errors import AwsError

    tracks = "TargetTrackingScalingPolicyConfiguration" in params
    kind = params.get("PolicyType", "TargetTrackingScaling" if tracks else "StepScaling")
    if kind not in ("TargetTrackingScaling", "StepScaling"):
        raise Invalid(f"{path}: a policy of type {kind} cannot be simulated.")
    name = str(params.get("PolicyName", path.stem))
    dimension = params.get("ScalableDimension", "sagemaker:variant:DesiredInstanceCount")
    try:
        configuration = check_policy(kind, params, dimension)
        parsed = read_configuration(kind, configuration)
        alarms = (
            tracking_alarms(name, configuration)
            if kind == "TargetTrackingScaling"
            else (step_alarm(name, params.get("Alarm")),)
        )
    except AwsError as error:
        raise Invalid(f"{path}: {error.message}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(f"{path} lacks a parameter or has one of another type: {error}") from error
    return SimulatedPolicy(name=name, configuration=parsed, alarms=alarms)


def _recorded(
    variant: str, hours: float, home: Path | None, config: Path | None
) -> tuple[float, ...]:
    """Returns the invocations of a variant by the minute; 0 where none are recorded."""
    endpoint_name, _, variant_name = variant.partition("/")
    if not endpoint_name or not variant_name:
        raise Invalid(f"--endpoint has the form ENDPOINT/VARIANT, unlike {variant!r}.")
    from sagehen.apply.client import connect_home

    cloudwatch = connect_home(home, config).client("cloudwatch")
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    start = end - timedelta(minutes=round(hours * 60))
    dimensions = [
        {"Name": "EndpointName", "Value": endpoint_name},
        {"Name": "VariantName", "Value": variant_name},
    ]
    by_minute: dict[datetime, float] = {}
    while start < end:
        until = min(end, start + timedelta(minutes=_PAGE_MINUTES))
        answer = cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=dimensions,
            StartTime=start,
            EndTime=until,
            Period=60,
            Statistics=["Sum"],
        )
        by_minute |= {point["Timestamp"]: point["Sum"] for point in answer["Datapoints"]}
        start = until
    if not by_minute:
        raise Invalid(f"No invocations of {variant} are recorded in the last {hours:g} hours.")
    return _checked(_filled(by_minute, end), f"The record of {variant}")


def _filled(by_minute: Mapping[datetime, float], end: datetime) -> tuple[float, ...]:
    first = min(by_minute)
    minutes = round((end - first).total_seconds() / 60)
    steps: Sequence[datetime] = [first + timedelta(minutes=number) for number in range(minutes)]
    return tuple(by_minute.get(minute, 0.0) for minute in steps)


def _as_dict(result: Any) -> dict[str, Any]:
    import msgspec

    described: dict[str, Any] = msgspec.to_builtins(result)
    return described
