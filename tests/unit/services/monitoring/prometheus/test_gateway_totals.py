"""Adding up what gateways have counted, through their restarts."""

from dataclasses import dataclass

import msgspec
import pytest

from sagehen.base.clock import SystemClock
from sagehen.services.monitoring.prometheus.gateway_totals import (
    MAX_GATEWAYS,
    SILENT_SECONDS,
    GatewayReport,
    InFlightTotals,
    Observations,
    VariantPresence,
)

LATENCY = {"count": 1, "sum": 5, "buckets": {"80": 1}}
KEY = ("Houses", "AllTraffic")


def report(gateway: str, *, variants: tuple[tuple[str, int], ...]) -> GatewayReport:
    """`variants`: (endpoint name, invocations)."""
    body = {
        "gateway": gateway,
        "variants": [
            {
                "endpoint": name,
                "variant": "AllTraffic",
                "Invocations": count,
                "InvocationsPerInstance": count / 2,
                "ModelLatency": LATENCY,
                "ConcurrentRequestsPerModel": {"now": 2, "lowest": 1, "highest": count},
                "QueuedRequests": {"now": 1, "lowest": 0, "highest": count - 1},
            }
            for name, count in variants
        ],
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=GatewayReport)


def invocations(observations: Observations) -> int:
    totals = observations.totals()
    return totals[KEY].invocations if KEY in totals else 0


@dataclass
class MovableClock(SystemClock):
    seconds: float = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def observations(clock: MovableClock) -> Observations:
    return Observations(clock)


def test_nothing_was_counted_at_first(observations: Observations) -> None:
    assert observations.totals() == {}


def test_gateways_add_up_and_a_new_report_takes_the_place_of_the_last(
    observations: Observations,
) -> None:
    observations.record(report("1", variants=(("Houses", 3),)))
    observations.record(report("2", variants=(("Houses", 4),)))
    observations.record(report("1", variants=(("Houses", 5),)))

    assert invocations(observations) == 9
    total = observations.totals()[KEY]
    assert (total.model_latency.count, total.model_latency.sum) == (2, 10)
    assert total.model_latency.buckets == {80: 2}
    assert total.invocations_per_instance == 4.5


def error_report(gateway: str, at: float, message: str) -> GatewayReport:
    error = {"at": at, "status": 500, "message": message}
    variant = {"endpoint": "Houses", "variant": "AllTraffic", "LastError": error}
    body = {"gateway": gateway, "variants": [variant]}
    return msgspec.json.decode(msgspec.json.encode(body), type=GatewayReport)


def test_of_the_gateways_last_errors_the_latest_is_told(observations: Observations) -> None:
    assert observations.last_errors() == {}
    observations.record(error_report("1", 5.0, "early"))
    observations.record(error_report("2", 9.0, "late"))
    observations.record(error_report("1", 7.0, "between"))
    assert observations.last_errors()[KEY].message == "late"
    observations.record(report("2", variants=(("Houses", 4),)))
    assert observations.last_errors()[KEY].message == "between"


def test_a_gateway_that_died_still_counts(observations: Observations) -> None:
    observations.record(report("1", variants=(("Houses", 3),)))
    observations.record(report("2", variants=(("Houses", 1),)))

    assert invocations(observations) == 4


def test_a_gateway_that_begins_anew_under_its_old_id_adds_up(observations: Observations) -> None:
    observations.record(report("1", variants=(("Houses", 100),)))
    observations.record(report("1", variants=(("Houses", 2),)))
    observations.record(report("1", variants=(("Houses", 4),)))

    assert invocations(observations) == 104


def test_a_gateway_that_begins_anew_keeps_its_sketches_too(observations: Observations) -> None:
    observations.record(report("1", variants=(("Houses", 100),)))
    observations.record(report("1", variants=(("Houses", 2),)))

    assert observations.totals()[KEY].model_latency.buckets == {80: 2}


def test_what_gateways_work_on_adds_up(observations: Observations) -> None:
    observations.record(report("1", variants=(("Houses", 3),)))
    observations.record(report("2", variants=(("Houses", 4),)))

    assert observations.present() == {
        KEY: VariantPresence(
            in_flight=InFlightTotals(now=4, lowest=2, highest=7),
            queued=InFlightTotals(now=2, lowest=0, highest=5),
        )
    }


def test_a_gateway_that_is_silent_works_on_nothing(
    observations: Observations, clock: MovableClock
) -> None:
    observations.record(report("1", variants=(("Houses", 3),)))
    clock.seconds += SILENT_SECONDS
    observations.record(report("2", variants=(("Houses", 4),)))
    clock.seconds += 1

    assert observations.present()[KEY].in_flight == InFlightTotals(now=2, lowest=1, highest=4)


def hits(gateway: str, **limit_hits: int) -> GatewayReport:
    return GatewayReport(gateway=gateway, variants=(), limit_hits=limit_hits)


def test_limits_that_were_met_add_up_over_gateways(observations: Observations) -> None:
    observations.record(hits("1", queue=3, head=0))
    observations.record(hits("2", queue=4))
    observations.record(hits("1", queue=5, head=1))

    assert observations.limit_hits() == {"queue": 9, "head": 1}


def test_limits_that_were_met_stay_when_gateways_go(observations: Observations) -> None:
    observations.record(hits("1", queue=3, head=1))
    # Another process under its id: it has met one limit more often already, another not yet.
    observations.record(hits("1", queue=5, head=0))
    for number in range(MAX_GATEWAYS + 50):
        observations.record(hits(f"g{number}", queue=1))

    assert observations.limit_hits() == {"queue": 8 + MAX_GATEWAYS + 50, "head": 1}
    assert len(observations._last_limit_hits) == MAX_GATEWAYS


def test_an_endpoint_made_anew_starts_from_nothing(observations: Observations) -> None:
    observations.record(report("1", variants=(("Houses", 100),)))
    observations.record(report("1", variants=(("Houses", 2),)))
    observations.record(report("1", variants=()))
    observations.record(report("1", variants=(("Houses", 7),)))

    assert invocations(observations) == 7


def test_however_many_gateways_come_and_go_their_counts_stay(observations: Observations) -> None:
    for number in range(MAX_GATEWAYS + 50):
        observations.record(report(str(number), variants=(("Houses", 1),)))

    assert invocations(observations) == MAX_GATEWAYS + 50
    assert len(observations._gateways) == MAX_GATEWAYS


@pytest.mark.parametrize(
    "body",
    [
        {"gateway": "1"},
        {"gateway": "1", "variants": [{"endpoint": "e", "variant": "v", "Invocations": -1}]},
        {"gateway": "1", "variants": [{"endpoint": "e", "variant": "v", "Invocations": "many"}]},
        {"gateway": "1", "variants": [{"endpoint": "e" * 64, "variant": "v"}]},
        {"gateway": "", "variants": []},
        {"gateway": "1", "variants": [], "limit_hits": {"queue": -1}},
        {
            "gateway": "1",
            "variants": [
                {"endpoint": "e", "variant": "v", "ModelLatency": {"buckets": {"9999": 1}}}
            ],
        },
    ],
)
def test_what_is_no_report_is_refused(body: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=GatewayReport)


def counted(container: str, invocations: int, *, is_stage: bool) -> dict[str, object]:
    return {
        "endpoint": "Houses",
        "variant": "AllTraffic",
        "container": container,
        "is_stage": is_stage,
        "Invocations": invocations,
        "ModelLatency": LATENCY,
        "QueuedRequests": {"now": invocations, "highest": invocations},
    }


def record(observations: Observations, *variants: dict[str, object]) -> None:
    body = msgspec.json.encode({"gateway": "1", "variants": variants})
    observations.record(msgspec.json.decode(body, type=GatewayReport))


def test_what_the_stages_of_a_pipeline_count_is_not_counted_twice(
    observations: Observations,
) -> None:
    whole = counted("", 3, is_stage=False)
    record(observations, whole, *(counted(one, 3, is_stage=True) for one in ("a", "b")))

    assert invocations(observations) == 3
    assert observations.totals()[KEY].model_latency.count == 1
    assert {key[2]: one.invocations for key, one in observations.containers().items()} == {
        "a": 3,
        "b": 3,
    }


def test_what_is_asked_of_containers_directly_is_the_variants(observations: Observations) -> None:
    whole = counted("", 0, is_stage=False)
    record(observations, whole, counted("a", 3, is_stage=False), counted("b", 4, is_stage=False))

    assert invocations(observations) == 7
    assert observations.present()[KEY].queued.now == 7
    assert observations.containers()[(*KEY, "b")].invocations == 4
