import os

from sagehen.agent.instances.limits import (
    InstanceLimit,
    Limits,
    add_hits,
    choose_limits,
    describe_hit,
)
from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.base.settings import Settings

MEMORY, PROCESSES, CPU, LOG = InstanceLimit


def test_a_type_that_the_machine_can_hold_is_held_to(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("sagehen.agent.instances.limits.machine_memory_bytes", lambda: 64 * 2**30)
    assert choose_limits("ml.m5.large", Settings()) == Limits(
        memory_bytes=8 * 2**30, processes=4096, cpus=2, vcpus=2
    )


def test_a_type_that_is_larger_than_the_machine_may_have_all_of_it() -> None:
    limits = choose_limits("ml.m5.24xlarge", Settings())
    assert limits.memory_bytes == min(machine_memory_bytes(), 384 * 2**30)
    assert limits.cpus is None or limits.cpus < len(os.sched_getaffinity(0))
    assert choose_limits("ml.unheard.of", Settings()).memory_bytes == machine_memory_bytes()


def test_settings_go_before_the_type() -> None:
    chosen = choose_limits(
        "ml.m5.large", Settings(instance_memory_bytes=2**28, max_instance_processes=7)
    )
    assert (chosen.memory_bytes, chosen.processes) == (2**28, 7)
    assert choose_limits("ml.m5.large", Settings(instance_limits=False)) == Limits()


def test_what_containers_share_is_not_added_up() -> None:
    one, other = {MEMORY: 1, CPU: 3, PROCESSES: 2}, {MEMORY: 1, CPU: 4, LOG: 5}
    assert add_hits([one, other]) == {MEMORY: 2, CPU: 4, PROCESSES: 2, LOG: 5}


def test_a_reason_says_how_much_there_was() -> None:
    limits = Limits(memory_bytes=300 * 2**20, processes=40)
    assert "passed the 300 MiB of memory of its instance" in describe_hit(MEMORY, limits)
    assert "passed the 40 processes and threads" in describe_hit(PROCESSES, limits)
