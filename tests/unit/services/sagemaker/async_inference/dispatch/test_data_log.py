"""The data-log: one line for each thing that the server says, in the instance's folder."""

from pathlib import Path

import pytest

from sagehen.frame.routes import InstanceRoute
from sagehen.services.sagemaker.async_inference.dispatch.data_log import RequestDataLog
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer
from support.clock import HandClock


@pytest.fixture
def container() -> RoutedContainer:
    container = RoutedContainer(
        InstanceRoute(instance_id="i-1", address="unix:/x"), "unix:/x", "End"
    )
    container.variant_name = "v"
    return container


def test_each_text_is_one_line_with_its_time(tmp_path: Path, container: RoutedContainer) -> None:
    log = RequestDataLog(tmp_path, 1000, HandClock(1_700_000_000.5))
    log.write(container, "id 1", "first\nline\r")
    log.write(container, "id 2", "second")

    written = (tmp_path / "End" / "v" / "i-1" / "data-log.log").read_text()
    assert written.splitlines() == [
        "2023-11-14T22:13:20.500:[sagemaker logs] [id 1] first\\nline\\r",
        "2023-11-14T22:13:20.500:[sagemaker logs] [id 2] second",
    ]


def test_a_large_log_is_rotated(tmp_path: Path, container: RoutedContainer) -> None:
    log = RequestDataLog(tmp_path, 100, HandClock())
    for number in range(9):
        log.write(container, "id", f"text {number}")

    folder = tmp_path / "End" / "v" / "i-1"
    assert sorted(path.name for path in folder.iterdir()) == ["data-log.log", "data-log.log.1"]
    assert all(path.stat().st_size <= 100 for path in folder.iterdir())


def test_an_unwritable_log_is_only_warned_about(
    tmp_path: Path, container: RoutedContainer, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "End").write_text("a file in the folder's place")
    RequestDataLog(tmp_path, 100, HandClock()).write(container, "id", "text")
    assert "The data-log cannot be written" in caplog.text
