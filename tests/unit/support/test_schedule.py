"""The tests' own distribution: whole files, and a worker's death is one failure."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from support.schedule import TOGETHER, FileScheduling

TESTS = [f"tests/test_{file}.py::test_{number}" for file in "abcdefgh" for number in range(3)]


@dataclass(eq=False)
class Worker:
    """What a scheduler knows of a worker."""

    asked: list[str] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self):
        return SimpleNamespace(id="gw")

    def send_runtest_some(self, indices):
        self.asked += [TESTS[index] for index in indices]

    def shutdown(self):
        self.shutting_down = True


@pytest.fixture
def started():
    """A scheduler that has given work to two workers."""
    config = SimpleNamespace(
        getvalue=lambda name: ["popen"] * 2, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler = FileScheduling(config)
    workers = [Worker(), Worker()]
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    return scheduler, workers


def run_to_the_end(scheduler, worker):
    done = 0
    while done < len(worker.asked):
        scheduler.mark_test_complete(worker, TESTS.index(worker.asked[done]))
        done += 1
    assert worker.shutting_down


def test_files_stay_whole(started):
    scheduler, (one, other) = started
    run_to_the_end(scheduler, one)
    run_to_the_end(scheduler, other)
    assert sorted(one.asked + other.asked) == TESTS
    assert not {test[:15] for test in one.asked} & {test[:15] for test in other.asked}


def test_the_test_at_which_a_worker_dies_is_not_run_again(started):
    scheduler, (one, other) = started
    scheduler.mark_test_complete(one, TESTS.index(one.asked[0]))
    assert scheduler.remove_node(one) == one.asked[1]
    run_to_the_end(scheduler, other)
    assert sorted([*one.asked[:2], *other.asked]) == TESTS


def test_two_may_die_and_the_next_has_told_its_tests_only_then(started):
    scheduler, (one, other) = started
    first = scheduler.remove_node(one)
    new = Worker()
    scheduler.add_node(new)
    second = scheduler.remove_node(other)
    assert not new.asked
    scheduler.add_node_collection(new, TESTS)
    scheduler.schedule()
    run_to_the_end(scheduler, new)
    assert sorted([first, second, *new.asked]) == TESTS


def test_a_worker_that_had_nothing_left_is_not_blamed(started):
    scheduler, (one, _) = started
    run_to_the_end(scheduler, one)
    assert scheduler.remove_node(one) is None


def test_what_imports_the_same_framework_is_in_one_process(started):
    scheduler, _ = started
    names = [f"{TOGETHER[0]}test_{name}.py::test_it" for name in ("pytorch", "huggingface")]
    assert len({scheduler._split_scope(name) for name in names}) == 1
