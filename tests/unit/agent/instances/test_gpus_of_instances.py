"""Instances hold GPUs while they live, and hand them back however they end."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.instances.instance import Instance
from sagehen.agent.node import Node
from sagehen.frame.container_specs import InstanceState
from support.nvidia_smi import ListedGpus


@pytest.fixture
def gpu_node(node: Node) -> Node:
    pace = replace(node.pace, gpu_wait_seconds=0)
    return replace(node, gpus=GpuPool(node.settings, node.clock, ListedGpus(1)), pace=pace)


@pytest.fixture
def start(gpu_node: Node, make_spec):
    """`start(id, …)` starts an instance of a type with a GPU."""

    def begin(instance_id: str, **container) -> Instance:
        spec = make_spec(instance_id, **container)
        spec = msgspec.structs.replace(spec, instance_type="ml.g5.xlarge")
        instance = Instance(spec, gpu_node, lambda: None)
        instance.start()
        return instance

    return begin


def free(node: Node) -> list[float]:
    return [gpu.free for gpu in node.gpus.report().gpus]


async def is_in(instance: Instance, state: InstanceState, wait_for) -> None:
    await wait_for(lambda: instance.report.state is state)


@pytest.fixture
def wait_for():
    async def wait(holds) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    return wait


async def test_a_second_instance_fails_until_the_first_is_gone(start, gpu_node, wait_for):
    first = start("i-1")
    await is_in(first, InstanceState.IN_SERVICE, wait_for)
    assert free(gpu_node) == [0]
    second = start("i-2")
    await is_in(second, InstanceState.FAILED, wait_for)
    assert "InsufficientInstanceCapacity" in str(second.report.failure_reason)
    assert "held by: endpoint houses, instance i-1" in str(second.report.failure_reason)
    await first.stop()
    assert free(gpu_node) == [1]
    third = start("i-3")
    await is_in(third, InstanceState.IN_SERVICE, wait_for)
    await third.stop()
    await second.stop()
    assert free(gpu_node) == [1]


async def test_an_instance_that_fails_holds_nothing(start, gpu_node, wait_for):
    broken = start("i-1", image="broken")
    await is_in(broken, InstanceState.FAILED, wait_for)
    await wait_for(lambda: free(gpu_node) == [1])
    await broken.stop()
    wrong = start("i-2", environment={"SAGEHEN_GPU_FRACTION": "3"})
    await is_in(wrong, InstanceState.FAILED, wait_for)
    reason = str(wrong.report.failure_reason)
    assert reason.startswith("CannotStartContainerError")
    assert "SAGEHEN_GPU_FRACTION is '3'" in reason
    await wrong.stop()
    assert free(gpu_node) == [1]
