import io
import json
import pickle

import joblib
import numpy as np
import pytest

from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.adapters.sklearn import adapter
from sagehen.containers.modelserver.contract import ModelRequest, Refusal
from support.frameworks import sparse


@pytest.fixture(scope="module")
def linear():
    """y = 1*a + 2*b"""
    from sklearn.linear_model import LinearRegression

    rows = np.array([[0, 0], [1, 0], [0, 1], [2, 3]], dtype=np.float64)
    return LinearRegression().fit(rows, rows @ [1, 2])


@pytest.fixture
def load(base_dir, environment):
    return lambda: adapter(environment("sklearn")).load(base_dir / "model")


def answer(model, body, content_type="text/csv", accept=""):
    (prediction,) = model.predict([model.decode(body, content_type)])
    return model.encode(prediction, accept)


def as_npy(rows):
    out = io.BytesIO()
    np.save(out, np.array(rows, dtype=np.float64))
    return out.getvalue()


def as_npz(rows):
    out = io.BytesIO()
    sparse.save_npz(out, sparse.csr_matrix(np.array(rows, dtype=np.float64)))
    return out.getvalue()


@pytest.mark.parametrize("name", ["model.joblib", "model.pkl"])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"1,1\n2,2\n", "text/csv"),
        (b"[[1, 1], [2, 2]]", "application/json"),
        (as_npy([[1, 1], [2, 2]]), "application/x-npy"),
        (None, "application/x-npz"),
    ],
)
def test_a_plain_model_file_is_served_without_a_script(
    load, linear, base_dir, name, body, content_type
):
    body = body or as_npz([[1, 1], [2, 2]])
    dump = (
        joblib.dump
        if name.endswith("joblib")
        else lambda model, path: path.write_bytes(pickle.dumps(model))
    )
    dump(linear, base_dir / "model" / name)
    found = answer(load(), body, content_type)
    assert (found.status, found.content_type) == (200, "application/json")
    assert json.loads(found.body) == pytest.approx([3, 6], abs=1e-5)


def test_several_requests_are_predicted_together(load, linear, base_dir):
    joblib.dump(linear, base_dir / "model" / "model.joblib")
    model = load()
    batch = [model.decode(body, "text/csv") for body in (b"1,1", b"2,2\n3,3", b"0,0")]
    found = model.predict(batch)
    assert [len(each) for each in found] == [1, 2, 1]
    assert np.concatenate(found).tolist() == pytest.approx([3, 6, 9, 0], abs=1e-5)


def test_labels_and_single_columns(load, base_dir):
    from sklearn.dummy import DummyClassifier

    classifier = DummyClassifier(strategy="constant", constant="cat").fit(
        [[0], [1]], ["cat", "dog"]
    )
    joblib.dump(classifier, base_dir / "model" / "model.joblib")
    model = load()
    assert answer(model, b"1\n2\n3").body == b'["cat", "cat", "cat"]'
    assert answer(model, b"1", accept="text/csv").body == b"cat\n"


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status"),
    [
        (b"1,1", "text/plain", "", 415),
        (b"{nope", "application/json", "", 400),
        (b"[[1], [1, 2]]", "application/json", "", 400),
        (b"1,2,3", "text/csv", "", 400),
        (b"a,b\n1,2", "text/csv", "", 400),
        (b"1,2\n1", "text/csv", "", 400),
        (b"", "text/csv", "", 400),
        (b"1,2", "", "", 415),
        (b"1,1", "text/csv", "image/png", 406),
    ],
)
def test_bad_input(load, linear, base_dir, body, content_type, accept, status):
    joblib.dump(linear, base_dir / "model" / "model.joblib")
    with pytest.raises(Refusal) as caught:
        answer(load(), body, content_type, accept)
    assert caught.value.status == status


def test_an_object_is_told_what_to_be(load, linear, base_dir):
    joblib.dump(linear, base_dir / "model" / "model.joblib")
    with pytest.raises(Refusal, match=r"it is an object; send a list of rows, such as \[\[1, 2\]"):
        answer(load(), b'{"instances": [[1, 1]]}', "application/json")


def test_a_script_gets_the_containers_defaults(load, linear, base_dir, put_script, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "path", sys.path[:])
    joblib.dump(linear, base_dir / "model" / "mine.joblib")
    put_script(inference="import joblib\ndef model_fn(d): return joblib.load(d + '/mine.joblib')\n")
    headers = {b"content-type": b"text/csv"}
    model = load()
    found = model.call(ModelRequest("POST", "/invocations", headers, b"1,1\n", lambda _: None))
    sys.modules.pop("inference")
    assert json.loads(found.body) == pytest.approx([3], abs=1e-5)
    missing = model.call(ModelRequest("POST", "/invocations", headers, b"NA,1\n", lambda _: None))
    assert (missing.status, b"contains NaN" in missing.body) == (500, True)


@pytest.mark.parametrize("name", ["model.joblib", "model.pkl"])
def test_a_model_file_that_does_not_load_is_named(load, base_dir, name):
    (base_dir / "model" / name).write_bytes(b"\x80\x04cut")
    with pytest.raises(ModelFileError, match=f"Model {name} cannot be loaded"):
        load()


def test_rows_of_other_widths_do_not_disturb_each_other(load, linear, base_dir):
    joblib.dump(linear, base_dir / "model" / "model.joblib")
    model = load()
    sparse_rows = as_npz([[2, 2]])
    batch = [
        model.decode(body, kind)
        for body, kind in (
            (b"1,1", "text/csv"),
            (sparse_rows, "application/x-npz"),
            (as_npy([[0, 1]]), "application/x-npy"),
            (b"3,3", "text/csv"),
        )
    ]
    found = np.concatenate(model.predict(batch)).tolist()
    assert found == pytest.approx([3, 6, 2, 9], abs=1e-5)
