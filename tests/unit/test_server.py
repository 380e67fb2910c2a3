import socket
from pathlib import Path

import pytest

from sagehen import server
from sagehen.errors import Unavailable
from sagehen.home import prepare_home
from sagehen.settings import Settings
from sagehen.supervisor import Supervisor
from support.clock import HandClock


@pytest.fixture
def nobody() -> str:
    """The address of a port at which nobody listens while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


async def test_a_start_that_takes_long_says_so_every_five_seconds(short_path: Path, nobody: str):
    home, clock, said = prepare_home(short_path / "home"), HandClock(), []
    supervisor = Supervisor([server.Role("agent")], Settings(home=home.path), {}, clock)

    with pytest.raises(Unavailable, match="within 60 s"):
        await server._wait_until_ready(nobody, supervisor, home, clock, said.append)

    assert len(said) == 11
    assert said[0].startswith("Still waiting for the server's processes to answer, after 5 s of")
    assert str(home.logs) in said[0]
