"""What the loader tells of a model beside loading it."""

import asyncio
import logging
import threading

import pytest

from sagehen.containers.modelserver.serving import loading
from sagehen.containers.modelserver.serving.loading import HeapTrimmer, Loader


class NoModel:
    """An adapter whose models do not load."""

    def needs_worker(self, model_dir) -> bool:
        return False

    def load(self, model_dir):
        raise LookupError("no model")


@pytest.mark.parametrize("told", [True, False])
async def test_a_script_that_is_not_run_is_named_in_the_log(base_dir, environment, caplog, told):
    folder = base_dir / "model" / ("" if told else "code")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inference.py").write_text("")
    loader = Loader(NoModel(), environment("sklearn"))
    try:
        with caplog.at_level(logging.WARNING), pytest.raises(LookupError):
            await loader.load("model", str(base_dir / "model"))
    finally:
        await loader.close()
    assert ("inference.py at the top of the archive is not run" in caplog.text) is told


async def test_memory_is_trimmed_once_for_all_models_unloaded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trims: list[threading.Thread] = []
    trimmed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        trims.append(threading.current_thread())
        loop.call_soon_threadsafe(trimmed.set)

    monkeypatch.setattr(loading, "trim", trim)
    trimmer = HeapTrimmer(seconds=0)
    for _ in range(3):
        trimmer.request()
    await trimmed.wait()
    assert len(trims) == 1
    assert trims[0] is not threading.main_thread(), "it takes milliseconds"
    trimmed.clear()
    trimmer.request()
    await trimmed.wait()
    assert len(trims) == 2
