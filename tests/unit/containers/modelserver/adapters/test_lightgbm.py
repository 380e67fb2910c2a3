import json
import pickle
import sys

import joblib
import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.lightgbm import adapter
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.contract import ModelRequest
from support.frameworks import lightgbm

QUIET = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).normal(size=(80, 3))


@pytest.fixture(scope="module")
def train(data):
    """Trains a booster for an objective; each is trained once."""
    made = {}

    def trained(objective="regression"):
        labels = data.sum(axis=1)
        settings = {**QUIET, "objective": objective}
        if objective == "binary":
            labels = labels > 0
        if objective == "multiclass":
            labels, settings["num_class"] = np.digitize(labels, [-1, 1]), 3
        if objective not in made:
            made[objective] = lightgbm.train(settings, lightgbm.Dataset(data, labels), 5)
        return made[objective]

    return trained


@pytest.fixture
def put(base_dir):
    def write(booster, name="model.txt"):
        path = base_dir / "model" / name
        if name.endswith("joblib"):
            joblib.dump(booster, path)
        elif name.endswith("pkl"):
            path.write_bytes(pickle.dumps(booster))
        else:
            booster.save_model(path)

    return write


def as_csv(rows):
    return "\n".join(",".join(map(repr, map(float, row))) for row in rows).encode()


@pytest.mark.parametrize("name", ["model.txt", "model.pkl", "model.joblib"])
def test_a_booster_is_served_from_each_of_its_forms(load_as, ask, train, put, data, name):
    put(train(), name)
    model = load_as("lightgbm")
    expected = {"prediction": train().predict(data).tolist()}
    assert json.loads(ask(model, as_csv(data), "text/csv").body) == expected
    assert json.loads(ask(model, json.dumps(data.tolist()).encode()).body) == expected
    answer = ask(model, as_csv(data[:2]), "text/csv", "text/csv")
    assert list(map(float, answer.body.split())) == expected["prediction"][:2]


def test_npy_is_read(load_as, ask, train, put, data, as_npy):
    put(train())
    answer = ask(load_as("lightgbm"), as_npy(data[:1]), "application/x-npy")
    assert json.loads(answer.body) == {"prediction": train().predict(data[:1]).tolist()}


@pytest.mark.parametrize("objective", ["binary", "multiclass"])
def test_a_classifier_gives_the_probability_of_each_class(
    load_as, ask, train, put, data, objective
):
    put(train(objective))
    model = load_as("lightgbm")
    scores = train(objective).predict(data[:2])
    if objective == "binary":
        scores = np.column_stack([1 - scores, scores])
    answer = json.loads(ask(model, as_csv(data[:2]), "text/csv").body)
    assert answer == {"probabilities": scores.tolist()}
    verbose = json.loads(ask(model, as_csv(data[:2]), "text/csv", "application/json;verbose").body)
    assert verbose["labels"] == list(range(scores.shape[1]))
    assert verbose["predicted_label"] == scores.argmax(axis=1).tolist()
    lines = ask(model, as_csv(data[:2]), "text/csv", "text/csv").body.decode().splitlines()
    assert [[float(cell) for cell in line.split(",")] for line in lines] == scores.tolist()


def test_a_scikit_learn_wrapper_names_its_classes(load_as, ask, put, data):
    kinds = np.where(data.sum(axis=1) > 0, "yes", "no")
    wrapper = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(data, kinds)
    put(wrapper, "model.joblib")
    body = as_csv(data[:4])
    answer = json.loads(ask(load_as("lightgbm"), body, "text/csv", "application/json;verbose").body)
    assert answer["labels"] == ["no", "yes"]
    assert (
        answer["predicted_label"]
        == wrapper.booster_.predict(data[:4]).round().astype(int).choose(["no", "yes"]).tolist()
    )


def test_several_requests_are_predicted_together_and_nan_is_missing(load_as, ask, train, put, data):
    put(train())
    model = load_as("lightgbm")
    holes = data[:3].copy()
    holes[1, 0] = np.nan
    bodies = [as_csv(holes[:1]), as_csv(holes[1:]).replace(b"nan", b"")]
    found = model.predict([model.decode(body, "text/csv") for body in bodies])
    assert np.concatenate(found).tolist() == train().predict(holes).tolist()
    answer = ask(model, json.dumps([[None, *holes[1, 1:]]]).encode())
    assert json.loads(answer.body)["prediction"] == train().predict(holes[1:2]).tolist()


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status", "message"),
    [
        (b"1,2,3", "text/plain", "", 415, "Content type text/plain is not supported"),
        (b"1,2,3", "text/csv", "image/png", 406, "Accept type image/png is not supported"),
        (b"", "text/csv", "", 400, "it is empty"),
        (b"a,b,c\n1,2,3", "text/csv", "", 400, "could not convert"),
        (b"1,2,3\n1,2", "text/csv", "", 400, "line 2 has 2 cells"),
        (b"1,2", "text/csv", "", 400, "features in data (2) is not the same as it was in training"),
        (b"[[[1]]]", "application/json", "", 400, "2 dimensional"),
        (b'{"a": 1}', "application/json", "", 400, "The body is not application/json of numbers"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    load_as, ask, train, put, body, content_type, accept, status, message
):
    put(train())
    answer = ask(load_as("lightgbm"), body, content_type, accept)
    assert answer.status == status
    assert message in answer.body.decode()


def test_a_file_that_is_cut_off_does_not_take_the_process_with_it(load_as, train, put, base_dir):
    put(train())
    path = base_dir / "model" / "model.txt"
    whole = path.read_text()
    for part in ("", "no model", whole[:400], whole[: whole.index("end of trees")]):
        path.write_text(part)
        with pytest.raises(ModelFileError, match="is not a LightGBM model, or is cut off"):
            load_as("lightgbm")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.pkl", b"\x80\x04cut", "cannot be loaded: UnpicklingError"),
        ("model.pkl", pickle.dumps([1]), "is a list, not a LightGBM model"),
        ("other", b"", "needs model.txt, model.pkl or model.joblib; at its top there is other"),
    ],
)
def test_what_does_not_load_is_named(load_as, base_dir, name, content, message):
    (base_dir / "model" / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        load_as("lightgbm")


def test_of_two_models_none_is_chosen(load_as, train, put):
    put(train())
    put(train(), "model.pkl")
    with pytest.raises(ModelFileError, match=r"several models, model\.pkl, model\.txt"):
        load_as("lightgbm")


def test_a_script_gets_the_booster(load_as, train, put, put_script, data, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    put(train())
    put_script(inference="def output_fn(scores, accept): return f'{scores[0]:.3f} USD'\n")
    headers = {b"content-type": b"text/csv"}
    request = ModelRequest("POST", "/", headers, as_csv(data[:1]), lambda _: None)
    found = load_as("lightgbm").call(request)
    sys.modules.pop("inference")
    assert found.body.decode() == f"{train().predict(data[:1])[0]:.3f} USD"


def test_without_lightgbm_it_says_how_to_install_it(environment, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'lightgbm>="):
        adapter(environment("lightgbm"))
