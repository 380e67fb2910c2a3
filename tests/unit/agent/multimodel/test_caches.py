from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.agent.multimodel.caches import choose_capacity


def test_room_is_a_share_of_the_types_memory_or_the_machines_if_that_is_less() -> None:
    machine = machine_memory_bytes()
    assert choose_capacity("ml.unheard.of", 0.5, 0) == int(machine * 0.5)
    assert choose_capacity("ml.m5.24xlarge", 0.5, 0) == int(min(machine, 384 * 2**30) * 0.5)
    assert choose_capacity("ml.t2.medium", 1, 2**20) == min(machine, 4 * 2**30) - 2**20


def test_there_is_never_less_than_no_room() -> None:
    assert choose_capacity("ml.t2.medium", 0.5, 2**60) == 0
