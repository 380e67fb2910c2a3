"""Notices to systemd."""

import socket
from pathlib import Path

import pytest

from sagehen.base.service_manager import notify


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    path = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if is_abstract else path)
        notify("READY=1\nSTATUS=Serving.")
        assert manager.recv(100) == b"READY=1\nSTATUS=Serving."


@pytest.mark.parametrize("address", ["", "nowhere", "/none/there"])
def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
