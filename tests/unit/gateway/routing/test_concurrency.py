"""The limits of a serverless variant: requests at once over all gateways, and a body's size."""

import asyncio

import pytest

from sagehen.frame.routes import OnDemandRoute
from sagehen.gateway.admission.errors import error_body
from sagehen.gateway.client.limits import Limit, no_hits
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.concurrency import MAX_SERVERLESS_BODY_BYTES, Concurrency
from sagehen.gateway.routing.inflight import create_inflight_table, open_inflight_table
from sagehen.wire.errors import AwsError


@pytest.fixture
def make(tmp_path):
    """`make(row)`: the view of one of two gateways."""
    path = tmp_path / "inflight"
    create_inflight_table(path, 2)

    def concurrency(row: int = 0, **route: int) -> Concurrency:
        made = Concurrency(
            VariantCounters(endpoint="e", variant="v"), open_inflight_table(path, row), no_hits()
        )
        made.update(OnDemandRoute(**{"max_concurrency": 2, "inflight_column": 7, **route}))
        return made

    return concurrency


def throttled(concurrency: Concurrency) -> bool:
    try:
        concurrency.admit(1)
    except AwsError:
        return True
    concurrency.enter()
    return False


def test_the_error_has_no_message(make):
    one = make(max_concurrency=1)
    one.admit(1)
    with pytest.raises(AwsError) as caught:
        one.admit(1)
    assert (caught.value.code, caught.value.status) == ("ThrottlingException", 400)
    assert error_body(caught.value) == b'{"Message":null}'


def test_the_requests_of_all_gateways_count(make):
    one, two = make(0), make(1)
    assert not throttled(one)
    assert not throttled(two)
    assert throttled(one)
    assert throttled(two)
    two.leave()
    assert not throttled(one)
    assert one.outstanding == 2


def test_what_was_throttled_takes_no_room(make):
    one = make()
    one.admit(1)
    one.admit(1)
    for _ in range(5):
        assert throttled(one)
    assert one.outstanding == 2
    one.leave()
    assert not throttled(one)
    assert one._limit_hits[Limit.CONCURRENCY] == 5


def test_a_column_that_changes_takes_the_count_along(make):
    one, two = make(0), make(1, inflight_column=9)
    one.admit(1)
    one.update(OnDemandRoute(max_concurrency=2, inflight_column=9))
    assert two.outstanding == 1
    one.retire()
    assert (one.outstanding, two.outstanding) == (1, 0)


def test_without_a_column_a_gateway_counts_for_itself(make):
    one = make(inflight_column=None)
    assert [throttled(one) for _ in range(3)] == [False, False, True]


def test_larger_bodies_are_refused(make):
    one = make()
    one.admit(MAX_SERVERLESS_BODY_BYTES)
    with pytest.raises(AwsError) as caught:
        one.admit(MAX_SERVERLESS_BODY_BYTES + 1)
    assert caught.value.code == "ValidationError"
    assert one.outstanding == 1


def test_spill_over_is_counted(make):
    one = make(max_concurrency=5, provisioned_concurrency=2)
    for _ in range(3):
        one.admit(1)
    counters = one._counters
    assert (counters.provisioned_invocations, counters.spillover_invocations) == (2, 1)


async def test_a_caller_over_the_limit_is_throttled(house, variant, eventually):
    release = asyncio.Event()

    async def answer(asked):
        await release.wait()
        return 200, {}, b"x"

    fake = await house.fake(answer)
    on_demand = OnDemandRoute(max_concurrency=2, inflight_column=3)
    house.route(variant(fake, on_demand=on_demand))
    await house.start()
    calls = [asyncio.create_task(house.invoke()) for _ in range(2)]
    await eventually(lambda: len(fake.asked) == 2)
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ThrottlingException")
    release.set()
    assert [got.status for got in await asyncio.gather(*calls)] == [200, 200]
    assert (await house.invoke()).status == 200
    assert house.inflight_table(1).outstanding(3) == 0
    all_counters = house.gateway._counters
    counters = all_counters.variant("price", "AllTraffic")
    assert (counters.invocations, counters.errors_4xx) == (3, 0)
    assert all_counters.limit_hits["concurrency"] == 1


async def test_those_that_wait_for_a_start_count(house, variant, eventually):
    await house.control(lambda asked: (204, {}, b""))
    on_demand = OnDemandRoute(max_concurrency=1, inflight_column=3)
    house.route(variant(on_demand=on_demand))
    await house.start()
    call = asyncio.create_task(house.invoke())
    await eventually(lambda: house.gateway._routes.queued == 1)
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ThrottlingException")
    house.route(variant(await house.fake(lambda asked: (200, {}, b"")), on_demand=on_demand))
    assert (await call).status == 200
