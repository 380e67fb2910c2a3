"""The driver here is an object: what it lists is given, and nothing is run."""

import asyncio
from fractions import Fraction

import pytest

from sagehen.agent.gpus.driver import GpuUsage
from sagehen.agent.gpus.pool import GpuPool, NoCapacity
from sagehen.frame.gpus import GpuHolder
from support.clock import SteppedClock
from support.nvidia_smi import ListedGpus
from support.state import settings_of

ONE, FOUR, NONE = "ml.g5.xlarge", "ml.g5.12xlarge", "ml.m5.large"
HALF = Fraction(1, 2)


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def driver():
    return ListedGpus(2)


@pytest.fixture
def make_pool(clock, driver, tmp_path):
    return lambda **settings: GpuPool(settings_of(tmp_path, **settings), clock, driver)


@pytest.fixture
def pool(make_pool):
    return make_pool()


def reserve(pool, instance_type=ONE, name="a", hosts=0, **options):
    holders = [GpuHolder(training_job=name, host=f"algo-{n}") for n in range(1, hosts + 1)]
    holders = holders or [GpuHolder(endpoint=name, variant="v", instance=f"i-{name}")]
    return pool.reserve(instance_type, holders, **{"wait_seconds": 3, **options})


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_has_gpus_of_its_own_until_it_releases_them(pool, clock):
    first, second = await reserve(pool), await reserve(pool, name="b")
    assert (first.hosts, second.hosts) == ((("0",),), (("1",),))
    third = asyncio.create_task(reserve(pool, name="c"))
    await clock.sleeper(3)
    clock.advance(3)
    with pytest.raises(NoCapacity) as raised:
        await third
    assert str(raised.value) == (
        "ml.g5.xlarge needs 1 GPU, and too few of this machine's 2 GPUs are free; held by: "
        "endpoint a, instance i-a; endpoint b, instance i-b"
    )
    first.release()
    first.release()
    assert (await reserve(pool, name="c")).hosts == (("0",),)


async def test_waits_for_those_that_leave_as_long_as_they_take(pool, clock):
    shares = [await reserve(pool), await reserve(pool)]
    waiting = asyncio.create_task(reserve(pool, name="c"))
    await clock.sleeper(3)
    shares[1].leave()
    await settle()
    clock.advance(1000)
    await settle()
    assert not waiting.done()
    shares[1].release()
    assert (await waiting).hosts == (("1",),)


async def test_a_cancelled_wait_leaves_nothing(pool, clock):
    shares = [await reserve(pool), await reserve(pool)]
    for patient in (False, True):
        waiting = asyncio.create_task(reserve(pool, patient=patient))
        await clock.sleeper(3)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    for share in shares:
        share.release()
    assert (await reserve(pool, "ml.g5.12xlarge", patient=True)).hosts == (("0", "1"),)


async def test_a_small_type_has_none_and_a_large_one_all(pool, driver):
    assert (await reserve(pool, NONE)).hosts == [()]
    assert driver.lists == 0
    assert (await reserve(pool, FOUR)).hosts == (("0", "1"),)


async def test_require_refuses_what_the_machine_cannot_have(make_pool):
    with pytest.raises(NoCapacity, match="12xlarge needs 4 GPUs, and this machine has 2 GPUs"):
        await reserve(make_pool(gpus="require"), FOUR)


async def test_without_gpus_a_type_runs_on_the_cpu_unless_required(make_pool, driver):
    driver.gpus = []
    assert (await reserve(make_pool())).hosts == [None]
    with pytest.raises(NoCapacity, match="needs 1 GPU, and this machine has no GPU"):
        await reserve(make_pool(gpus="require"))
    driver.is_installed = False
    pool = make_pool()
    assert (await reserve(pool)).hosts == [None]
    assert pool.report().uses_cpu


async def test_unmanaged_counts_nothing(make_pool, driver):
    pool = make_pool(gpus="unmanaged")
    pool.start()
    assert [(await reserve(pool, kind)).hosts for kind in (NONE, ONE, FOUR)] == [[None]] * 3
    assert driver.lists == 0
    assert (pool.report().gpus, pool.report().uses_cpu) == ((), False)


async def test_a_driver_that_fails_is_asked_again_later(make_pool, driver, clock, caplog):
    pool = make_pool(gpus="require")
    driver.error = "nvidia-smi did not end within 20 s"
    for _ in range(2):
        with pytest.raises(NoCapacity, match="no GPU: nvidia-smi did not end within 20 s"):
            await reserve(pool)
    assert driver.lists == 1
    assert "not known: nvidia-smi did not end" in caplog.text
    assert pool.report().problem == driver.error
    driver.error = None
    clock.advance(30)
    assert (await reserve(pool)).hosts == (("0",),)
    assert pool.report().problem is None


async def test_only_chosen_gpus_are_used(make_pool, driver, caplog):
    assert (await reserve(make_pool(gpu_devices=("GPU-1",)), FOUR)).hosts == (("1",),)
    assert (await reserve(make_pool(gpu_devices=("0",)), FOUR)).hosts == (("0",),)
    assert (await reserve(make_pool(gpu_devices=("7",)))).hosts == [None]
    assert "Instances have no GPU: the setting gpu_devices" in caplog.text


async def test_the_servers_own_choice_limits_too(clock, driver, tmp_path):
    settings = settings_of(tmp_path)
    for visible, hosts in ((("1",), (("1",),)), (("GPU-0",), (("0",),)), ((), [None])):
        pool = GpuPool(settings, clock, driver, visible)
        assert (await reserve(pool, FOUR)).hosts == hosts
    both = GpuPool(settings_of(tmp_path, gpu_devices=("0",)), clock, driver, ("1",))
    assert (await reserve(both)).hosts == [None]


async def test_fractions_share_a_gpu_and_are_reported(pool):
    shares = [await reserve(pool, name=name, fraction=HALF) for name in "abc"]
    assert [share.hosts for share in shares] == [(("0",),), (("0",),), (("1",),)]
    first, second = pool.report().gpus
    assert (first.id, first.free, second.free) == ("0", 0, 0.5)
    assert [(holder.endpoint, holder.fraction) for holder in first.holders] == [
        ("a", 0.5),
        ("b", 0.5),
    ]


async def test_the_hosts_of_a_job_each_have_their_own(pool):
    share = await reserve(pool, hosts=2)
    assert share.hosts == (("0",), ("1",))
    assert [one.holders[0].host for one in pool.report().gpus] == ["algo-1", "algo-2"]
    with pytest.raises(NoCapacity, match="1 GPU on each of 3 hosts, and this machine has 2 GPUs"):
        await reserve(pool, hosts=3)


async def test_jobs_wait_in_order_and_endpoints_pass_them(pool):
    first, second = await reserve(pool), await reserve(pool)
    large = asyncio.create_task(reserve(pool, FOUR, hosts=1, patient=True, wait_seconds=900))
    small = asyncio.create_task(reserve(pool, hosts=1, patient=True, wait_seconds=900))
    await settle()
    first.release()
    await settle()
    assert not small.done()
    endpoint = await reserve(pool, name="quick")
    second.release()
    endpoint.release()
    taken = await large
    assert taken.hosts == (("0", "1"),)
    taken.release()
    assert (await small).hosts == (("0",),)


async def test_after_the_start_endpoints_come_before_jobs(pool, clock):
    pool.start()
    job = asyncio.create_task(reserve(pool, FOUR, hosts=1, patient=True, wait_seconds=900))
    await clock.sleeper(5)
    endpoint = await reserve(pool)
    clock.advance(5)
    await settle()
    assert not job.done()
    endpoint.release()
    assert (await job).hosts == (("0", "1"),)


async def test_utilization_is_that_of_the_last_reading(pool, driver, clock):
    driver.usages = {f"GPU-{n}": GpuUsage(compute=40 + n, memory=25) for n in (0, 1)}
    both = await reserve(pool, FOUR)
    clock.advance(10)
    assert both.utilization() == {}
    await settle()
    assert both.utilization() == {"GPUUtilization": 81, "GPUMemoryUtilization": 50}
    driver.error = "nvidia-smi failed"
    clock.advance(60)
    assert both.utilization() == {}
    both.release()
    assert both.utilization() == {}
    await pool.close()


async def test_a_type_without_gpus_reads_no_utilization(pool):
    assert (await reserve(pool, NONE)).utilization() == {}
