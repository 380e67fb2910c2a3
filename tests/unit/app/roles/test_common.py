"""A role's process, from what it is handed to its end."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from sagehen.base.pickled_settings import pickle_settings
from sagehen.base.settings import Settings
from support.server import eventually

_ROLE = """
from sagehen.app.roles.common import run, start_role

start = start_role("nothing")

async def main():
    print(start.settings.port)

run(main())
"""


def test_a_role_has_the_settings_it_is_handed_and_ends_in_order(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-uc", _ROLE, f"--parent={os.getpid()}"],
        input=pickle_settings(Settings(home=tmp_path, port=12345)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"12345\n", b"")


_SERVER = """
import sys
from pathlib import Path

from sagehen.app.roles.common import run, serve_on

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})

async def main():
    await serve_on(Path(sys.argv[1]), app)
    print("served")

run(main())
"""


def test_a_server_that_nobody_asks_ends_when_it_is_told_to(short_path: Path) -> None:
    file = short_path / "role.sock"
    command = [sys.executable, "-uc", _SERVER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as role:
        eventually(lambda: _answers(file))
        role.send_signal(signal.SIGTERM)
        said, _ = role.communicate(timeout=60)
    assert (said, role.returncode) == ("served\n", 0)


def _answers(file: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(file))
        except OSError:
            return False
        asking.sendall(b"GET / HTTP/1.1\r\nHost: role\r\n\r\n")
        return asking.recv(1000).startswith(b"HTTP/1.1 204 ")
