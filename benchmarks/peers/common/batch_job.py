"""The frame of a batch job over a file of rows: `python job.py INPUT OUTPUT MODE`.

Prints the seconds of the work, as JSON. Imports, the start of a cluster and the model's load are
not in them.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

CORES = len(os.sched_getaffinity(0))
COLUMNS = [f"c{number}" for number in range(6)]
ROWS_AT_ONCE = 65_536
BLOCK_BYTES = 6 * 2**20
"""of the file, for those that cut it themselves: as MaxPayloadInMB is"""

Work = Callable[[Path, Path], None]
"""Gets the input, and a file or folder for the output that does not exist."""


def run(prepare: Callable[[str], Work]) -> None:
    """`prepare` gets the mode."""
    source, output, mode = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    work = prepare(mode)
    began = time.perf_counter()
    work(source, output)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
