"""wrk as the load generator, which others measure with, too.

Its script makes it hardly cheaper than load.py: 19 µs of processor time a request beside 23, on
the machine of results/2026-11-23-peers.md. It needs Debian's package `wrk`, and TCP ports.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from sides import Failed, Side

SCRIPT = """\
local requests = {%s}
local last = 0
request = function()
  last = last %% #requests + 1
  return requests[last]
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    "RESULT %%d %%f %%f %%f %%f %%d\\n", summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1000, latency:percentile(90) / 1000, latency:percentile(99) / 1000,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""
RESULT = re.compile(r"^RESULT (.*)$", re.MULTILINE)
LONGEST_SILENCE_SECONDS = 10


def is_there() -> bool:
    return shutil.which("wrk") is not None


def run_wrk(side: Side, rows: Sequence[str], connections: int, seconds: float) -> dict[str, float]:
    """Returns the same figures as load.py prints."""
    requests = ",\n".join(_quoted(side.request(row)) for row in rows)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT % requests)
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s"]
        command += ["--timeout", f"{LONGEST_SILENCE_SECONDS}s", "-s", script.name]
        command += [f"http://{side.host}:{side.port}/"]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    found = RESULT.search(finished.stdout)
    if found is None:
        raise Failed(f"{side.name}: {finished.stderr.strip() or finished.stdout.strip()}")
    answers, duration, p50, p90, p99, failures = map(float, found[1].split())
    return {
        "answers": answers,
        "requests_per_second": answers / duration,
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
        "failures": failures,
    }


def _quoted(request: bytes) -> str:
    """A string of Lua."""
    plain = set(range(32, 127)) - set(b'"\\')
    return '"' + "".join(chr(each) if each in plain else f"\\{each:03d}" for each in request) + '"'
