"""How a role's process begins and ends."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

from sagehen.settings import Settings

PROGRAM = """
import asyncio
from sagehen.roles.common import run, start_role

async def main(start):
    print(start.home.path)

run(main(start_role("idle")))
"""


def test_a_role_ends_well_with_the_settings_that_it_was_handed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--parent={os.getpid()}"],
        input=pickle.dumps(Settings(home=tmp_path)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.decode().strip()) == (0, str(tmp_path)), ended.stderr
