"""A role's process, from what it is handed to its end."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

from sagehen.settings import Settings

_ROLE = """
from sagehen.roles.common import run, start_role

start = start_role("nothing")

async def main():
    print(start.settings.port)

run(main())
"""


def test_a_role_has_the_settings_it_is_handed_and_ends_in_order(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-uc", _ROLE, f"--parent={os.getpid()}"],
        input=pickle.dumps(Settings(home=tmp_path, port=12345)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"12345\n", b"")
