import io
import json
import sys
from typing import Any

import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.pytorch.adapter import adapter
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.contract import ModelRequest, Refusal

# Imported by `_import_torch`.
torch: Any
Double: Any
Particular: Any
Several: Any
Share: Any

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def _import_torch():
    """Not above: every worker collects these tests, one runs them, and it takes seconds."""
    global torch, Double, Particular, Several, Share
    import torch

    from support.torch_modules import Double, Particular, Several, Share


@pytest.fixture
def load(base_dir, environment):
    def loaded(*modules, names=("model.pt",), **variables):
        for module, name in zip(modules, names, strict=False):
            torch.jit.script(module).save(base_dir / "model" / name)
        return adapter(environment("pytorch", **variables)).load(base_dir / "model")

    return loaded


def answer(model, body, content_type="application/json", accept=""):
    (prediction,) = model.predict([model.decode(body, content_type)])
    return model.encode(prediction, accept)


def as_npy(values):
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


@pytest.mark.parametrize(
    ("body", "content_type", "doubled"),
    [
        (b"[[1, 2], [3, 4]]", "application/json", [[2, 4], [6, 8]]),
        (b"[1.5]", "application/json; charset=utf-8", [3]),
        (b"7", "application/json", 14),
        (b"1,2\n3,4\n", "text/csv", [[2, 4], [6, 8]]),
        (b"1,2", "text/csv", [2, 4]),
        (as_npy(np.array([[1, 2]])), "application/x-npy", [[2, 4]]),
    ],
)
def test_the_containers_forms_become_tensors_as_they_are(load, body, content_type, doubled):
    found = answer(load(Double()), body, content_type)
    assert (found.status, found.content_type) == (200, "application/json")
    assert json.loads(found.body) == doubled


def test_text_is_single_precision_and_numpys_form_has_its_own(load):
    model = load(Double())
    assert model.decode(b"[[1]]", "application/json").values.dtype == torch.float32
    assert model.decode(as_npy(np.array([[1]])), "application/x-npy").values.dtype == torch.int64


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        ("text/csv", "text/csv", b"2.0,4.0\n"),
        ("image/png, application/json", "application/json", b"[[2.0, 4.0]]"),
        ("*/*", "application/json", b"[[2.0, 4.0]]"),
        ("application/json;verbose", "application/json", b"[[2.0, 4.0]]"),
    ],
)
def test_answers_in_the_form_accepted(load, accept, content_type, body):
    found = answer(load(Double()), b"[[1, 2]]", accept=accept)
    assert (found.content_type, found.body) == (content_type, body)


def test_missing_numbers_go_through(load):
    found = answer(load(Double()), b"1,,NaN\n", "text/csv")
    assert found.body == b"[2.0, NaN, NaN]"


def test_the_default_accept_of_the_environment(load):
    model = load(Double(), SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="application/x-npy")
    assert np.load(io.BytesIO(answer(model, b"[[1]]").body)).tolist() == [[2.0]]


def test_outputs_with_names_and_parts(load):
    assert json.loads(answer(load(Several()), b"[[1, 2]]").body) == {
        "sum": [3],
        "parts": [[[1, 2]], [[2, 3]]],
    }


def calls_of(model):
    """The shapes that the model is called with from now on."""
    shapes, module = [], model._calls._model
    model._calls._model = lambda values: (shapes.append(tuple(values.shape)), module(values))[1]
    return shapes


def predicted(model, *bodies):
    found = model.predict([model.decode(body, "application/json") for body in bodies])
    return [json.loads(model.encode(prediction, "").body) for prediction in found]


MIXED = (b"[[1, 2]]", b"[3, 4]", b"[[5, 6], [7, 8]]", b"[9, 8]", b"[[1], [2]]", b"3")


def test_requests_of_one_shape_are_predicted_together_and_answered_apart(load):
    model = load(Double())
    alone = [predicted(model, body)[0] for body in MIXED]
    assert predicted(model, *MIXED) == alone
    shapes = calls_of(model)  # trusted by now
    assert predicted(model, *MIXED) == alone
    assert sorted(shapes) == [(), (2, 1), (2, 2), (3, 2)]


def test_named_outputs_are_split_too(load):
    model = load(Several())
    alone = [predicted(model, body)[0] for body in MIXED[:4]]
    assert [predicted(model, *MIXED[:4]) for _ in range(2)] == [alone, alone]
    shapes = calls_of(model)
    predicted(model, *MIXED[:4])
    assert len(shapes) == 2


@pytest.mark.parametrize("bodies", [(b"[[1, 2]]", b"[[3, 4]]"), (b"[[1, 2]]", b"[[1, 2]]")])
def test_a_model_that_mixes_rows_is_never_given_those_of_two_requests(load, bodies):
    model = load(Share())
    for _ in range(2):
        assert predicted(model, *bodies) == [[[1, 1]], [[1, 1]]]
    shapes = calls_of(model)
    predicted(model, *bodies)
    assert shapes == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status", "said"),
    [
        (b"[[1, 2]]", "text/plain", "", 415, "text/plain"),
        (b"[[1, 2]]", "", "", 415, "no Content-Type"),
        (b"[[1, 2]]", "application/json", "image/png", 406, "image/png"),
        (b"{nope", "application/json", "", 400, "not application/json of numbers"),
        (b'[["a"]]', "application/json", "", 400, "not application/json of numbers"),
        (b'{"inputs": [1]}', "application/json", "", 400, "object; send a list of rows"),
        (b"[[1], [1, 2]]", "application/json", "", 400, "not application/json of numbers"),
        (b"", "application/json", "", 400, "it is empty"),
        (b"", "text/csv", "", 400, "it is empty"),
        (b"1,2\n3\n", "text/csv", "", 400, "not text/csv of numbers"),
        (b"junk", "application/x-npy", "", 400, "not application/x-npy of numbers"),
        (b"[[1, 2, 3]]", "application/json", "", 400, "two columns, please"),
        (b"[[[1, 2]]]", "application/json", "text/csv", 406, "Ask for application/json"),
    ],
)
def test_bad_input(load, body, content_type, accept, status, said):
    with pytest.raises(Refusal, match=said) as caught:
        answer(load(Particular()), body, content_type, accept)
    assert caught.value.status == status


def test_a_model_file_of_any_name_is_found_if_it_is_the_only_one(load):
    assert json.loads(answer(load(Double(), names=["mine.pth"]), b"[1]").body) == [2]


def test_model_pt_goes_before_others(load):
    model = load(Share(), Double(), names=["other.pt", "model.pt"])
    assert json.loads(answer(model, b"[1]").body) == [2]


def test_two_model_files_or_none_are_refused(load, base_dir):
    with pytest.raises(ModelFileError, match=r"Exactly one .* has: none"):
        load()
    with pytest.raises(ModelFileError, match=r"Exactly one .* has: a.pt, b.pth"):
        load(Double(), Double(), names=["a.pt", "b.pth"])


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_what_is_no_torchscript_is_refused(load, base_dir, content):
    path = base_dir / "model" / "model.pt"
    if content is None:
        torch.save({"weight": torch.ones(1)}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match="Please ensure model is saved using torchscript"):
        load()


def test_threads_are_those_of_openmp(load):
    load(Double(), OMP_NUM_THREADS="2")
    assert torch.get_num_threads() == 2
    load(Double())
    assert torch.get_num_threads() == 1


def test_a_missing_framework_is_named_with_what_to_install(environment, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        Unavailable, match=r"pip install 'torch>=2\.4' \(without a GPU add --extra-index-url"
    ):
        adapter(environment("pytorch"))


@pytest.fixture
def script(put_script, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield lambda text: put_script(inference=text)
    sys.modules.pop("inference", None)


def call(model, body, content_type="application/json"):
    headers = {b"content-type": content_type.encode()}
    return model.call(ModelRequest("POST", "/invocations", headers, body, lambda _: None))


def test_a_script_gets_the_containers_defaults(load, script):
    script("def predict_fn(data, model):\n    return model(data) + 1\n")
    assert call(load(Double()), b"[[1, 2]]").body == b"[[3.0, 5.0]]"


def test_a_script_may_bring_the_model_only(load, script):
    script("import torch\ndef model_fn(d):\n    return torch.nn.Linear(2, 1)\n")
    assert len(json.loads(call(load(), b"1,2\n3,4", "text/csv").body)) == 2


def test_a_script_without_model_fn_needs_a_model_file(load, script):
    script("def predict_fn(data, model):\n    return data\n")
    with pytest.raises(ModelFileError, match="Exactly one"):
        load()


def test_memory_that_is_used_up_is_told_as_such(load):
    class Large(torch.nn.Module):
        def forward(self, rows):
            return torch.zeros(1 << 60)

    model = load(Large())
    with pytest.raises(MemoryError):
        answer(model, b"[1]")
