"""What the loader tells of a model beside loading it."""

import logging

import pytest

from sagehen.containers.modelserver.serving.loading import Loader


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
