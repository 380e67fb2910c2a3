"""Which worker runs which tests: a file's all on one, so that what they share is made once."""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TOGETHER = (
    "tests/unit/app/demo/",
    "tests/unit/containers/modelserver/adapters/",
    "tests/boto/cli/",
    "tests/boto/sdk/",
    "tests/faults/load/",
    "tests/system/docker/",
    "tests/system/installed/",
    "tests/system/scripts/",
)
"""Folders whose files stay together: what they import or start takes seconds in each process."""


class FileScheduling(LoadFileScheduling):
    """pytest-xdist's own, but for TOGETHER and for workers that die.

    Its own runs the test at which a worker died again, on one worker after the other, and gives
    work to workers that have not told their tests yet.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next(filter(nodeid.startswith, TOGETHER), nodeid.partition("::")[0])

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that ran when the worker died; None if it had nothing left to do."""
        left = {
            scope: tests
            for scope, tests in self.assigned_work.pop(node).items()
            if not all(tests.values())
        }
        if not left:
            return None
        current = next(iter(left.values()))
        crashed = next(nodeid for nodeid, done in current.items() if not done)
        current[crashed] = True
        self.workqueue.update(
            {scope: tests for scope, tests in left.items() if not all(tests.values())}
        )
        for other in self.assigned_work.keys() & self.registered_collections.keys():
            self._reschedule(other)
        return crashed
