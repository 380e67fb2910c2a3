"""What tests cost is counted with the processes that they start, and printed dearest first."""

import importlib
import subprocess
import sys
from pathlib import Path

from support.costs import descendants_seconds
from support.server import eventually

SCRIPTS = Path(__file__).parents[3] / "scripts"
BUSY = "import time\nwhile time.process_time() < 0.5: pass\ninput()"


def test_processes_that_still_run_are_counted():
    before = descendants_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as busy:
        try:
            eventually(lambda: descendants_seconds() - before > 0.4)  # in ticks of 10 ms
        finally:
            busy.kill()


def test_the_dearest_come_first(capsys, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    print_costs = importlib.import_module("test_costs").print_costs

    tests = {"a.py::test": 1.0, "b.py::first": 2.0, "b.py::second": 2.0}
    costs = {"files": {"a.py": 1.0, "b.py": 4.0}, "fixtures": {}, "tests": tests}
    print_costs({**costs, "waits": {"b.py::first": 9.0}, "servers": {"b.py": 2}}, lines=1)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "5 s in 3 tests of 2 files, 2 starts of servers"
    assert printed[4] == "    4.00 s  b.py  (2 tests)"
    assert not any("a.py" in line for line in printed)
