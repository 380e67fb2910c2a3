"""Loads what lies in the model folder, and answers requests as a batch of one."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sagehen.modelserver.adapters import make_adapter
from sagehen.modelserver.contract import Answer, Refusal


@pytest.fixture
def load_as(base_dir, environment) -> Callable[..., Any]:
    """`load_as("onnx", VARIABLE="value")` is the model in `base_dir/model`."""
    return lambda name, **variables: make_adapter(environment(name, **variables)).load(
        base_dir / "model"
    )


@pytest.fixture(scope="session")
def ask() -> Callable[..., Answer]:
    """`ask(model, body, content_type, accept)`: the answer, also where it is a refusal."""

    def asked(model, body, content_type="application/json", accept=""):
        try:
            (prediction,) = model.predict([model.decode(body, content_type)])
            return model.encode(prediction, accept)
        except Refusal as refusal:
            return refusal.answer

    return asked


@pytest.fixture(scope="session")
def as_npy() -> Callable[[Any], bytes]:
    def convert(rows: Any) -> bytes:
        out = io.BytesIO()
        np.save(out, np.array(rows))
        return out.getvalue()

    return convert
