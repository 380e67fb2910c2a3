"""Which node an instance goes to."""

from hypothesis import given
from hypothesis import strategies as st

from sagehen.frame.nodes import Resources
from sagehen.placement.choice import LoadSum, NodeLoad, Workload, choose_node, describe_lack

GIB = 2**30


def size(cpus=2.0, gib=8, gpus=0.0):
    return Resources(cpus=cpus, memory_bytes=gib * GIB, gpus=gpus)


def node(node_id, *workloads, total=None, models=()):
    total = total or size(16, 64)
    load = LoadSum(workloads)
    return NodeLoad(node_id=node_id, total=total, load=load, models=frozenset(models))


def work(group="", resources=None, models=()):
    return Workload(
        resources=resources or size(),
        group=group,
        models=frozenset(models),
        instance_type="ml.m5.large",
    )


def test_the_instances_of_a_variant_are_spread_over_nodes():
    nodes = [node("a", work("v"), work("v")), node("b", work("v")), node("c", *[work()] * 4)]
    assert choose_node(work("v"), nodes) == "c"
    assert choose_node(work("v"), nodes[:2]) == "b"


def test_everything_else_is_packed_so_that_large_types_find_room():
    nodes = [node("a"), node("b", work()), node("c", work(), work())]
    assert choose_node(work(), nodes) == "c"
    full = node("c", *[work()] * 8)
    assert choose_node(work(), [*nodes[:2], full]) == "b"


def test_a_node_that_holds_the_model_is_preferred():
    nodes = [node("a", work()), node("b", models=["s3://m/1", "s3://m/2"])]
    assert choose_node(work("v", models=["s3://m/1"]), nodes) == "b"
    assert choose_node(work("v", models=["s3://m/3"]), nodes) == "a"
    fetching = [node("a", work("v", models=["s3://m/1"])), node("b", work(), work())]
    assert choose_node(work("w", models=["s3://m/1"]), fetching) == "a"
    some = [node("a", models=["s3://m/1"]), node("b", work()), node("c", models=["s3://m/2"])]
    assert choose_node(work("v", models=["s3://m/2", "s3://m/4"]), some) == "c"
    spread = [nodes[0], node("b", work("v"), models=["s3://m/1"])]
    assert choose_node(work("v", models=["s3://m/1"]), spread) == "a", "spreading comes first"


def test_each_resource_counts():
    large = node("a", total=size(96, 768, 8))
    assert choose_node(work(resources=size(4, 16, 0.5)), [node("b"), large]) == "a"
    assert choose_node(work(resources=size(4, 999)), [large]) is None
    assert choose_node(work(resources=size(97, 1)), [large]) is None
    half = work(resources=size(1, 1, 0.1))
    assert choose_node(half, [node("a", *[half] * 9, total=size(96, 768, 1))]) == "a"
    assert choose_node(half, [node("a", *[half] * 10, total=size(96, 768, 1))]) is None


def test_the_lack_of_room_is_explained():
    busy = node("a", *[work()] * 8)
    assert describe_lack(work(), [busy]) == (
        "ml.m5.large needs 2 vCPUs, 8 GiB of memory, which no node of the cluster has free now: "
        "add a node, or one with more (cluster_cpus, cluster_memory_gib), or choose a smaller "
        "instance type"
    )
    too_large = work(resources=size(96, 768, 8))
    assert describe_lack(too_large, [busy]) == (
        "ml.m5.large needs 96 vCPUs, 768 GiB of memory, 8 GPUs; none of the cluster's 1 nodes is "
        "that large: add one, or choose a smaller instance type"
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 20))
def test_no_node_is_ever_given_more_than_it_has(before, added):
    loads = {f"n{number}": [work("v")] * min(count, 8) for number, count in enumerate(before)}
    for _ in range(added):
        nodes = [node(key, *workloads) for key, workloads in loads.items()]
        chosen = choose_node(work("v"), nodes)
        if chosen is None:
            assert all(len(workloads) == 8 for workloads in loads.values())
            break
        assert len(loads[chosen]) == min(map(len, loads.values()))
        loads[chosen].append(work("v"))
        assert len(loads[chosen]) <= 8
