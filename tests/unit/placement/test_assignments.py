"""The loads of nodes, kept as work comes and goes, are those of all work added up."""

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sagehen.frame.nodes import Resources
from sagehen.placement.assignments import Assignments
from sagehen.placement.choice import LoadSum, NodeLoad, Workload, choose_node

KEYS = st.sampled_from(["k1", "k2", "k3", "k4", "k5"])
NODES = st.sampled_from(["a", "b", "c"])
WORKLOADS = st.builds(
    Workload,
    resources=st.builds(
        Resources,
        cpus=st.integers(0, 4),
        memory_bytes=st.integers(0, 100),
        gpus=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    group=st.sampled_from(["", "v", "w"]),
    models=st.frozensets(st.sampled_from(["m1", "m2", "m3"]), max_size=2),
)
TOTAL = Resources(cpus=9, memory_bytes=250, gpus=2)


def seen(load):
    return load.resources, dict(load.groups), dict(load.models)


class Loads(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.assignments = Assignments()
        self.nodes = [
            SimpleNamespace(
                node_id=name,
                is_alive=True,
                record=SimpleNamespace(resources=TOTAL, takes_work=True),
                models=frozenset(["m1"] if name == "b" else []),
            )
            for name in "abc"
        ]

    @rule(key=KEYS, workload=WORKLOADS)
    def learn(self, key, workload) -> None:
        self.assignments.learn(key, workload)

    @rule(key=KEYS, node_id=NODES)
    def assign(self, key, node_id) -> None:
        self.assignments.assign(key, node_id, 0.0)

    @rule(key=KEYS)
    def release(self, key) -> None:
        self.assignments.release(key)

    @rule(key=KEYS)
    def finish(self, key) -> None:
        self.assignments.finish(key)

    @rule()
    def forget_unknown(self) -> None:
        self.assignments.forget_unknown(lambda key: False)

    @rule(key=KEYS, workload=WORKLOADS)
    def choose(self, key, workload) -> None:
        """The work itself does not count, where it is placed anew."""
        loads = [
            NodeLoad(
                node_id=node.node_id,
                total=TOTAL,
                load=self._load(node.node_id, without=key),
                models=node.models,
            )
            for node in self.nodes
        ]
        chosen = self.assignments.choose(key, workload, self.nodes)
        assert chosen == choose_node(workload, loads)

    @rule(key=KEYS, workload=WORKLOADS)
    def wait(self, key, workload) -> None:
        self.assignments.wait(key, None, workload, self.nodes, 0.0)
        assert self.assignments.node_of(key) is None

    @invariant()
    def loads_are_sums(self) -> None:
        for load in self.assignments._node_loads(self.nodes):
            assert seen(load.load) == seen(self._load(load.node_id))

    def _load(self, node_id, without=None) -> LoadSum:
        return LoadSum(
            workload
            for key, workload in self.assignments.workloads.items()
            if key != without and self.assignments.node_of(key) == node_id
        )


TestLoads = Loads.TestCase
TestLoads.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
