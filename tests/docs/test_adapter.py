"""The adapter that the guide has its reader copy works as it stands there."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.contract import Refusal
from sagehen.containers.modelserver.environment import read_environment

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "add-an-adapter.md"


@pytest.fixture
def adapter():
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {"__name__": "guide"}
    exec(compile(code, GUIDE, "exec"), names)
    return names["adapter"](read_environment({}))


@pytest.fixture
def load(adapter, tmp_path):
    return lambda: adapter.load(tmp_path)


def test_the_guides_adapter_predicts_in_batches_and_refuses_what_does_not_fit(load, tmp_path):
    np.save(tmp_path / "weights.npy", np.array([1.0, 10.0]))
    model = load()
    batch = [model.decode(body, "text/csv") for body in (b"1,2", b"3,4\n5,6")]
    answers = [json.loads(model.encode(each, "").body) for each in model.predict(batch)]
    assert answers == [[21], [43, 65]]
    with pytest.raises(Refusal) as refused:
        model.predict([model.decode(b"1,2,3", "text/csv")])
    assert refused.value.status == 400


def test_only_a_script_needs_a_worker(adapter, tmp_path):
    assert not adapter.needs_worker(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").touch()
    assert adapter.needs_worker(tmp_path)


def test_the_guides_adapter_says_what_the_archive_needs(load):
    with pytest.raises(ModelFileError, match=r"needs weights\.npy"):
        load()
