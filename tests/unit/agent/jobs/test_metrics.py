import pytest
import regex

from sagehen.agent.jobs import metrics
from sagehen.agent.jobs.metrics import JobMetrics
from sagehen.base.errors import Invalid
from sagehen.frame.job_specs import JobMetric, MetricDefinition, StopRequest
from support.clock import HandClock, SteppedClock
from support.jobs import JobsUnderTest, MakeSpec

LOSS = MetricDefinition(name="loss", regex=r"loss=([0-9.eE+-]+)")
ACCURACY = MetricDefinition(name="accuracy", regex=r"accuracy: (\S+);?")


def found(printed: list[bytes], *definitions: MetricDefinition) -> dict[str, float]:
    read = JobMetrics(definitions or (LOSS, ACCURACY), HandClock())
    lines = read.lines()
    assert lines is not None
    for part in printed:
        lines(part)
    lines(b"")
    return {one.name: one.value for one in read.latest}


@pytest.mark.parametrize(
    ("printed", "values"),
    [
        ([b"epoch 1 loss=0.5\nepoch 2 loss=0.25 accuracy: 1\n"], {"loss": 0.25, "accuracy": 1}),
        ([b"epoch 1 lo", b"ss=0.", b"5\nep"], {"loss": 0.5}),
        ([b"loss=1e-3"], {"loss": 0.001}),
        ([b"loss=1\rloss=2\r"], {"loss": 2}),
        ([b"loss=1\nloss=--\naccuracy: nan\n"], {"loss": 1}),
        ([b"\xff loss=3\n"], {"loss": 3}),
        ([b"x" * 5000 + b" loss=4\n", b"loss=5 " + b"x" * 9000, b"\n"], {"loss": 5}),
        ([b"nothing\n"], {}),
        ([], {}),
    ],
)
def test_the_last_value_is_found(printed: list[bytes], values: dict[str, float]) -> None:
    assert found(printed) == values


def test_an_expression_that_loses_itself_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    hopeless = MetricDefinition(name="hopeless", regex=r"(a+)+(a+)+(a+)+b")
    line = b"a" * 4000 + b" loss=1\n"
    assert found([line] * 10, hopeless, LOSS) == {"loss": 1}
    assert caplog.text.count("The expression of the metric hopeless takes too long") == 1


def test_the_time_that_other_threads_take_is_not_an_expressions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`regex` reckons with it: while others work, a search may run out of time that took none."""
    search, allowed = regex.compile(LOSS.regex).search, []

    class Disturbed:
        def search(self, line: str, timeout: float, concurrent: bool) -> object:
            allowed.append(timeout)
            if timeout < 2:
                raise TimeoutError
            return search(line)

    monkeypatch.setattr(metrics, "_compile", lambda _: Disturbed())
    assert found([b"loss=1\n", b"loss=2\n", b"loss=3\n", b"loss=4\n"], LOSS) == {"loss": 4}
    assert allowed == [0.02, 0.2, 2] * 4
    assert caplog.text == ""


@pytest.mark.parametrize("wrong", ["(", "no group", "(?P<x>"])
async def test_what_cannot_find_a_number_is_refused(
    jobs: JobsUnderTest, make_spec: MakeSpec, wrong: str
) -> None:
    with pytest.raises(Invalid, match=r"metric m\b"):
        jobs.jobs.put(make_spec(metric_definitions=(MetricDefinition(name="m", regex=wrong),)))


async def test_a_job_reports_its_metrics(jobs: JobsUnderTest, make_spec: MakeSpec) -> None:
    report = await jobs.run(
        make_spec("echo loss=3; printf 'loss=2'", metric_definitions=(LOSS, ACCURACY))
    )
    assert report.metrics == (JobMetric(name="loss", value=2, at=1_700_000_000.0),)


async def test_and_while_it_runs(
    jobs: JobsUnderTest, make_spec: MakeSpec, clock: SteppedClock
) -> None:
    script = "echo loss=3; exec sleep 1000"
    jobs.jobs.put(make_spec(script, metric_definitions=(LOSS,)))
    await jobs.trains()
    while not (await jobs.trains()).metrics:
        await clock.sleeper(5)
        clock.advance(5)
        await jobs.turn()
    jobs.jobs.stop("j-1", StopRequest(grace_seconds=0))
    assert [one.value for one in (await jobs.ends()).metrics] == [3]


def test_nobody_reads_along_for_nothing() -> None:
    assert JobMetrics((), HandClock()).lines() is None
