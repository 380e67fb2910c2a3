import json
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.adapters.shared.recordio import write_recordio
from sagehen.containers.modelserver.adapters.xgboost import files, library
from sagehen.containers.modelserver.adapters.xgboost.adapter import adapter
from sagehen.containers.modelserver.adapters.xgboost.library import (
    BoosterError,
    Library,
    find_library,
)
from sagehen.containers.modelserver.contract import Refusal
from support.frameworks import xgboost


@pytest.fixture
def load(base_dir, environment):
    """Loads what is in the model folder."""

    def loaded(**variables):
        return adapter(environment("xgboost", **variables)).load(base_dir / "model")

    return loaded


def scores(model, body, content_type="text/csv"):
    (prediction,) = model.predict([model.decode(body, content_type)])
    return prediction


def expected(booster, rows, **options):
    return booster.predict(xgboost.DMatrix(rows), **options).tolist()


@pytest.mark.parametrize("form", ["ubj", "json", "pickle"])
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        ("reg:squarederror", {}),
        ("binary:logistic", {}),
        ("binary:hinge", {}),
        ("multi:softmax", {}),
        ("multi:softprob", {}),
        ("reg:squarederror", {"booster": "dart", "rate_drop": 0.5}),
        ("reg:squarederror", {"booster": "gblinear"}),
        ("reg:squarederror", {"num_parallel_tree": 3, "subsample": 0.5}),
    ],
    ids=lambda value: str(value),
)
def test_predictions_equal_those_of_the_package(
    train, put_model, load, base_dir, rows, as_csv, objective, parameters, form
):
    booster = train(objective, **parameters)
    put_model(base_dir / "model", booster, form)
    model = load()
    assert scores(model, as_csv(rows)) == expected(booster, rows)
    batch = [model.decode(as_csv(rows[at : at + 1]), "text/csv") for at in range(len(rows))]
    assert [score for (score,) in model.predict(batch)] == expected(booster, rows)
    model.close()


def test_early_stopping_predicts_up_to_the_best_iteration(
    regressor, put_model, load, base_dir, rows, as_csv
):
    booster = regressor.copy()
    booster.set_attr(best_iteration="4")
    put_model(base_dir / "model", booster)
    assert scores(load(), as_csv(rows)) == expected(booster, rows, iteration_range=(0, 5))


def test_several_files_are_averaged(train, put_model, load, base_dir, rows, as_csv):
    boosters = [train(seed=seed) for seed in range(3)]
    for number, booster in enumerate(boosters):
        put_model(base_dir / "model", booster, name=f"xgboost-model-{number}")
    mean = np.mean([booster.predict(xgboost.DMatrix(rows)) for booster in boosters], axis=0)
    assert scores(load(), as_csv(rows)) == mean.tolist()
    first = expected(boosters[0], rows)
    assert scores(load(SAGEMAKER_INFERENCE_ENSEMBLE="false"), as_csv(rows)) == first


def test_several_files_must_fit_together(train, put_model, load, base_dir):
    put_model(base_dir / "model", train(), name="a")
    narrow = xgboost.train(
        {"nthread": 1}, xgboost.DMatrix(np.eye(3), np.arange(3.0)), num_boost_round=1
    )
    put_model(base_dir / "model", narrow, name="b")
    with pytest.raises(ModelFileError, match="different numbers of features"):
        load()


def test_classifiers_that_answer_labels_vote(train, put_model, load, base_dir, rows, as_csv):
    boosters = [train("multi:softmax", seed=seed) for seed in range(3)]
    for number, booster in enumerate(boosters):
        put_model(base_dir / "model", booster, name=f"xgboost-model-{number}")
    votes = np.array([booster.predict(xgboost.DMatrix(rows)) for booster in boosters])
    winners = [float(np.bincount(column.astype(int)).argmax()) for column in votes.T]
    assert scores(load(), as_csv(rows)) == winners


def test_a_pickled_wrapper_and_dotfiles(regressor, load, base_dir, rows, as_csv):
    import pickle

    wrapper = xgboost.XGBRegressor()
    wrapper._Booster = regressor
    (base_dir / "model" / "model.pkl").write_bytes(pickle.dumps(wrapper))
    (base_dir / "model" / "._model.pkl").write_bytes(b"not a model")
    assert scores(load(), as_csv(rows)) == expected(regressor, rows)


def test_libsvm_is_assumed_and_leaves_out_what_is_missing(
    regressor, put_model, load, base_dir, rows
):
    put_model(base_dir / "model", regressor)
    body = b"0 0:1.5 2:-2\n3:1"
    table = np.full((2, 4), np.nan)
    table[0, 0], table[0, 2], table[1, 3] = 1.5, -2, 1
    for content_type in ("", "text/libsvm", "text/x-libsvm", "text/libsvm ;charset=utf8"):
        assert scores(load(), body, content_type) == expected(regressor, table)


def test_columns_may_be_missing_at_the_end(regressor, put_model, load, base_dir):
    put_model(base_dir / "model", regressor)
    assert scores(load(), b"1,2") == expected(regressor, np.array([[1, 2, np.nan, np.nan]]))


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"1,2,3,4", "text/plain", 415, "text/plain is not an accepted ContentType: csv, text/csv"),
        (b"1,2,x,4", "text/csv", 415, "Loading csv data failed with Exception, please ensure data"),
        (b"1,2,inf,4", "text/csv", 415, "infinity"),
        (b"1,2,-inf,4", "text/csv", 415, "infinity"),
        (b"-inf,2,inf,4", "text/csv", 415, "infinity"),
        (b",2,-inf,4", "text/csv", 415, "infinity"),
        (b"1,2,1e39,4", "text/csv", 415, "too large"),
        (b"1,2,3,4\n1,2,-1e39,4", "text/csv", 415, "too large"),
        (b"1:x", "", 415, "Loading libsvm data failed"),
        (b"1,2,3,4", "", 415, "it has no index:value"),
        (b"12345678", "application/x-recordio-protobuf", 415, "magic"),
        (b"1,2,3,4,5", "text/csv", 400, "Unable to evaluate payload provided: Feature size of csv"),
        (b"1:1 9:1", "text/libsvm", 400, "10 is larger than feature size of trained model 4"),
    ],
)
def test_bad_input_is_refused_in_sagemakers_words(
    regressor, put_model, load, base_dir, body, content_type, status, message
):
    put_model(base_dir / "model", regressor)
    with pytest.raises(Refusal) as caught:
        load().decode(body, content_type)
    assert caught.value.status == status
    assert message in str(caught.value)


def test_a_pickled_model_checks_the_number_of_columns(regressor, put_model, load, base_dir):
    put_model(base_dir / "model", regressor, "pickle")
    assert len(scores(load(), b"1,2,3")) == 1
    with pytest.raises(Refusal, match="2 is not consistent with feature size of trained model 4"):
        load().decode(b"1,2", "text/csv")


@pytest.mark.parametrize(
    ("accept", "variables", "content_type", "body"),
    [
        ("", {}, "text/csv; charset=utf-8", b"0.5,0.25"),
        ("*/*", {}, "text/csv; charset=utf-8", b"0.5,0.25"),
        (
            "application/json",
            {},
            "application/json",
            b'{"predictions": [{"score": 0.5}, {"score": 0.25}]}',
        ),
        (
            "application/jsonlines; charset=utf-8",
            {},
            "application/jsonlines",
            b'{"score": 0.5}\n{"score": 0.25}\n',
        ),
        (
            "",
            {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/jsonlines"},
            "application/jsonlines",
            b'{"score": 0.5}\n{"score": 0.25}\n',
        ),
        ("", {"SAGEMAKER_MULTI_MODEL": "true"}, "application/json", b"[0.5, 0.25]"),
    ],
)
def test_the_forms_of_an_answer(
    regressor, put_model, load, base_dir, accept, variables, content_type, body
):
    put_model(base_dir / "model", regressor)
    answer = load(**variables).encode([0.5, 0.25], accept)
    assert (answer.status, answer.content_type, answer.body) == (200, content_type, body)


def test_classes_stand_on_a_line_for_each_row(regressor, put_model, load, base_dir):
    put_model(base_dir / "model", regressor)
    answer = load().encode([[0.25, 0.75], [1.0, 0.0]], "text/csv")
    assert answer.body == b"0.25,0.75\n1.0,0.0"


def test_an_unknown_accept_is_406(regressor, put_model, load, base_dir):
    put_model(base_dir / "model", regressor)
    with pytest.raises(Refusal, match="Accept type image/png is not supported") as caught:
        load().encode([0.5], "image/png")
    assert caught.value.status == 406


def test_an_empty_body_is_204(regressor, put_model, load, base_dir):
    put_model(base_dir / "model", regressor)
    model = load()
    assert model.encode(scores(model, b""), "").status == 204


def test_selected_outputs(train, put_model, load, base_dir):
    put_model(base_dir / "model", train("binary:logistic"))
    model = load(SAGEMAKER_INFERENCE_OUTPUT="predicted_label,labels,probabilities,predicted_score")
    rows = json.loads(model.encode([0.75], "application/json").body)["predictions"]
    assert rows[0]["predicted_label"] == 1
    assert rows[0]["labels"] == [0, 1]
    assert rows[0]["probabilities"] == [0.25, 0.75]
    assert np.isnan(rows[0]["predicted_score"])
    assert model.encode([0.75], "text/csv").body == b'1,"[0, 1]","[0.25, 0.75]",nan'


def test_selected_outputs_as_records(train, put_model, load, base_dir):
    put_model(base_dir / "model", train("binary:logistic"))
    accept = "application/x-recordio-protobuf"
    answer = load(SAGEMAKER_INFERENCE_OUTPUT="probabilities").encode([0.75, 0.5], accept)
    assert (answer.status, answer.content_type) == (200, accept)
    rows = [{"probabilities": [0.25, 0.75]}, {"probabilities": [0.5, 0.5]}]
    assert answer.body == write_recordio(rows)
    with pytest.raises(Refusal, match="is not supported"):
        load().encode([0.75], accept)


def test_selected_outputs_of_an_objective_without_them(train, put_model, load, base_dir):
    put_model(base_dir / "model", train("reg:pseudohubererror"))
    with pytest.raises(Refusal, match="unsupported for selectable inference") as caught:
        load(SAGEMAKER_INFERENCE_OUTPUT="labels").encode([0.75], "")
    assert caught.value.status == 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no model", "xgboost-model cannot be loaded"),
        (b'{"learner": {}}', "xgboost-model cannot be loaded"),
        (b"\x80\x04cos\nnothing_of_the_kind\n.", "xgboost-model cannot be loaded"),
        (b"", "xgboost-model cannot be loaded"),
        (b"{L", "cut off"),
        (b"binf\x00\x00\x00?", "xgboost-model cannot be loaded"),
        (None, "no model file"),
    ],
)
def test_what_does_not_load_is_named(load, base_dir, content, message):
    if content is not None:
        (base_dir / "model" / "xgboost-model").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        load()


class NewLibrary:
    """Reads no old form, as XGBoost from 3.1 on."""

    version = (3, 2, 0)


class RefusingBooster:
    def __init__(self, library):
        pass

    def load(self, content):
        raise BoosterError("learner.cc: Check failed")

    def close(self):
        pass


class OldBooster:
    """Pickled as an XGBoost before 1.0 pickles a Booster: with the old binary form inside."""

    def __reduce__(self):
        state = {"handle": bytearray(b"\x00\x00\x00?" + bytes(200))}
        return object.__new__, (xgboost.Booster,), state


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (lambda: b"binf\x00\x00\x00?", "in XGBoost's old binary form"),
        (lambda: pickle.dumps(OldBooster()), "a pickled Booster"),
    ],
)
def test_a_form_that_a_newer_library_does_not_read_is_named(base_dir, monkeypatch, content, form):
    monkeypatch.setattr(files, "Booster", RefusingBooster)
    (base_dir / "model" / "xgboost-model").write_bytes(content())
    with pytest.raises(ModelFileError) as caught:
        files.load_boosters(NewLibrary(), base_dir / "model", ensemble=False)
    message = str(caught.value)
    assert f"Model xgboost-model cannot be loaded: it is {form}" in message
    assert "pip install 'xgboost-cpu>=3.0.5,<3.1'" in message
    assert "learner.cc" not in message


def saved_by(version, trained_booster, form):
    """Returns the model as another XGBoost would have named itself in it."""
    content = bytes(trained_booster.save_raw(raw_format=form))
    own = find_library().version
    if form == "json":
        old, new = (json.dumps(list(v)).replace(" ", "").encode() for v in (own, version))
    else:
        old, new = (b"".join(b"i%c" % part for part in v) for v in (own, version))
    assert content.count(old) == 1
    return content.replace(old, new)


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_a_model_of_a_newer_library_that_would_predict_wrongly_is_refused(
    load, base_dir, train, form
):
    path = base_dir / "model" / "xgboost-model"
    path.write_bytes(saved_by((3, 1, 2), train("reg:squarederror"), form))
    with pytest.raises(ModelFileError, match=r"was saved by XGBoost 3\.1\.2, and XGBoost 3\.0"):
        load()


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_a_model_of_another_patch_release_loads(load, base_dir, train, form):
    path = base_dir / "model" / "xgboost-model"
    path.write_bytes(saved_by((3, 0, 9), train("reg:squarederror"), form))
    assert len(scores(load(), b"1,2,3,4")) == 1


def test_a_library_whose_functions_take_other_arguments_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ctypes.CDLL", lambda path: SimpleNamespace(XGBGetLastError=SimpleNamespace())
    )
    with pytest.raises(Unavailable, match=r"older than 1\.5"):
        Library(tmp_path)


def test_without_xgboost_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(Unavailable, match=r"pip install 'xgboost-cpu>="):
        find_library()


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, [1]),
        ({"OMP_NUM_THREADS": "2"}, [1]),
        ({"SAGEMAKER_BATCH": "true"}, [1, 3, 1]),
        ({"SAGEMAKER_BATCH": "true", "OMP_NUM_THREADS": "2"}, [1, 2, 1]),
        ({"SAGEMAKER_BATCH": "true", "OMP_NUM_THREADS": "1"}, [1]),
    ],
)
def test_all_cores_predict_many_rows_of_a_transform_job(
    regressor, put_model, load, base_dir, rows, as_csv, monkeypatch, variables, threads
):
    put_model(base_dir / "model", regressor)
    monkeypatch.setattr(library, "MANY_ROWS", 30)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    chosen = []
    call = Library.call

    def note(self, name, *arguments):
        if name == "XGBoosterSetParam":
            chosen.append(int(arguments[2]))
        call(self, name, *arguments)

    monkeypatch.setattr(Library, "call", note)
    model = load(**variables)
    many = np.tile(rows[:10], (4, 1))
    for part in (rows[:1], many, many, rows[:2]):
        assert scores(model, as_csv(part)) == expected(regressor, part)
    assert chosen == threads
