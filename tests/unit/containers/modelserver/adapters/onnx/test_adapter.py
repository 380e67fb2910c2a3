import json
import sys

import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.onnx.adapter import adapter
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.contract import ModelRequest
from support.frameworks import onnx
from support.frameworks import onnx_helper as helper

FLOAT, INT64, STRING = 1, 7, 8
"""helper.TensorProto's numbers of these types."""


@pytest.fixture
def put(base_dir):
    """Writes a graph of these nodes, inputs and outputs as model.onnx."""

    def write(nodes, inputs, outputs, name="model.onnx", constants=()):
        graph = helper.make_graph(
            [helper.make_node(*node) for node in nodes],
            "graph",
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info(*each) for each in outputs],
            [helper.make_tensor(*each) for each in constants],
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(
            helper.make_model(graph, opset_imports=opsets, ir_version=9),
            base_dir / "model" / name,
        )

    return write


@pytest.fixture
def double(put, load_as):
    """y = 2x, for rows of two."""

    def loaded(rows=None, name="model.onnx"):
        x, y = ("x", FLOAT, [rows, 2]), ("y", FLOAT, [rows, 2])
        put([("Add", ["x", "x"], ["y"])], [x], [y], name)
        return load_as("onnx")

    return loaded


@pytest.fixture
def total(put, load_as):
    """y = a + b, of a row of two numbers and one more."""
    inputs = [("a", FLOAT, ["n", 2]), ("b", FLOAT, ["n", 1])]
    put([("Add", ["a", "b"], ["y"])], inputs, [("y", FLOAT, ["n", 2])])
    return load_as("onnx")


@pytest.fixture(scope="module")
def classifier():
    from sklearn.linear_model import LogisticRegression

    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    return LogisticRegression().fit(rows, np.where(rows.sum(axis=1) > 0, "yes", "no"))


@pytest.fixture
def put_classifier(classifier, base_dir):
    def put(**options):
        from skl2onnx import to_onnx  # seconds, for those who run this

        model = to_onnx(classifier, np.zeros((1, 3), np.float32), options={id(classifier): options})
        (base_dir / "model" / "model.onnx").write_bytes(model.SerializeToString())

    return put


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"[[1, 2], [3, 4]]", "application/json", [[2, 4], [6, 8]]),
        (b"[1, 2]", "application/json; charset=utf-8", [[2, 4]]),
        (b'{"instances": [[1, 2]]}', "application/json", {"predictions": [[2, 4]]}),
        (b'{"instances": [{"x": [1, 2]}]}', "application/json", {"predictions": [[2, 4]]}),
        (b'{"inputs": [[1, 2]]}', "application/json", {"outputs": [[2, 4]]}),
        (b'{"inputs": {"x": [[1, 2]]}}', "application/json", {"outputs": [[2, 4]]}),
        (b'{"x": [[1, 2]]}', "application/json", [[2, 4]]),
        (b"1,2\n3,4\n", "text/csv", [[2, 4], [6, 8]]),
    ],
)
def test_the_forms_of_a_request_shape_the_answer(double, ask, body, content_type, expected):
    answer = ask(double(), body, content_type)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body) == expected


def test_npy_in_and_out(double, ask, as_npy):
    answer = ask(double(), as_npy([[1, 2]]), "application/x-npy", "application/x-npy")
    assert answer.body == as_npy(np.array([[2, 4]], np.float32))


def test_several_requests_are_predicted_in_one_call(double, monkeypatch):
    model = double()
    calls = []
    run = model._session.run
    monkeypatch.setattr(model._session, "run", lambda *a: calls.append(a[1]) or run(*a))
    batch = [model.decode(body, "text/csv") for body in (b"1,1", b"2,2\n3,3", b"0,0")]
    found = [outputs["y"].tolist() for outputs, _ in model.predict(batch)]
    assert found == [[[2, 2]], [[4, 4], [6, 6]], [[0, 0]]]
    assert calls == [4]


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_fixed_batch_size_takes_any_number_of_rows(double, ask, rows):
    model = double(rows)
    assert json.loads(ask(model, b"1,2\n3,4\n5,6", "text/csv").body) == [[2, 4], [6, 8], [10, 12]]
    batch = [model.decode(body, "text/csv") for body in (b"1,1", b"2,2\n3,3")]
    found = [outputs["y"].tolist() for outputs, _ in model.predict(batch)]
    assert found == [[[2, 2]], [[4, 4], [6, 6]]]


def test_several_inputs_by_name_or_in_the_order_of_columns(total, ask):
    for body, content_type in (
        (b'{"a": [[1, 2], [3, 4]], "b": [[10], [20]]}', "application/json"),
        (b'[{"a": [1, 2], "b": [10]}, {"a": [3, 4], "b": [20]}]', "application/json"),
        (b"1,2,10\n3,4,20", "text/csv"),
    ):
        assert json.loads(ask(total, body, content_type).body) == [[11, 12], [23, 24]]


def test_outputs_that_are_not_by_row_are_given_whole(put, load_as):
    put([("ReduceSum", ["x"], ["y"])], [("x", FLOAT, [None, 2])], [("y", FLOAT, None)])
    model = load_as("onnx")
    batch = [model.decode(body, "text/csv") for body in (b"1,1", b"2,2\n3,3")]
    answers = [model.encode(each, "") for each in model.predict(batch)]
    assert [json.loads(answer.body) for answer in answers] == [[[2]], [[10]]]


def test_text_and_whole_numbers(put, load_as, ask):
    inputs = [("city", STRING, [None, 1]), ("year", INT64, [None, 1])]
    outputs = [("name", STRING, [None, 1]), ("when", INT64, [None, 1])]
    put([("Identity", ["city"], ["name"]), ("Identity", ["year"], ["when"])], inputs, outputs)
    model = load_as("onnx")
    body = b'[{"city": ["Bern"], "year": [1848]}]'
    assert json.loads(ask(model, body).body) == [{"name": ["Bern"], "when": [1848]}]
    answer = ask(model, b'"Bern, old",1848\nUri,1291', "text/csv", "text/csv")
    assert answer.body == b'"Bern, old",1848\nUri,1291\n'
    answer = ask(model, b'[{"city": ["Bern"], "year": [1848.5]}]')
    assert (answer.status, answer.body.decode()) == (
        400,
        "The body is not application/json of what the model takes: "
        "input 'year': it is not all numbers of int64",
    )


@pytest.mark.parametrize("options", [{}, {"zipmap": False}])
def test_labels_and_probabilities_of_a_classifier(
    put_classifier, load_as, ask, classifier, options
):
    put_classifier(**options)
    model = load_as("onnx")
    (row,) = json.loads(ask(model, b"[[1, 1, 1]]").body)
    label, chances = row.values()
    chances = [chances["no"], chances["yes"]] if isinstance(chances, dict) else chances
    assert label == "yes"
    assert chances == pytest.approx(classifier.predict_proba([[1, 1, 1]])[0], abs=1e-6)
    line = ask(model, b"1,1,1\n-1,-1,-1", "text/csv", "text/csv").body.decode().splitlines()
    assert [each.partition(",")[0] for each in line] == ["yes", "no"]
    assert float(line[0].split(",")[2]) == pytest.approx(chances[1], abs=1e-6)


def test_several_outputs_have_no_npy_and_the_refusal_does_not_offer_it(
    put_classifier, load_as, ask
):
    put_classifier(zipmap=False)
    model = load_as("onnx")
    answer = ask(model, b"1,1,1", "text/csv", "application/x-npy")
    assert (answer.status, answer.body.decode().rpartition(": ")[2]) == (
        406,
        "application/json, text/csv.",
    )


def test_the_threads_are_those_of_the_environment(double, load_as):
    double()
    options = load_as("onnx")._session._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    options = load_as("onnx", OMP_NUM_THREADS="2")._session._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)


def test_any_one_file_is_the_model(double):
    assert double(name="wine.onnx").decode(b"1,2", "text/csv").count == 1
    with pytest.raises(ModelFileError, match=r"several models, house\.onnx, wine\.onnx"):
        double(name="house.onnx")


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status", "message"),
    [
        (b"1,2", "text/plain", "", 415, "Content type text/plain is not supported"),
        (b"1,2", "", "", 415, "no Content-Type"),
        (b"1,2", "text/csv", "image/png", 406, "Accept type image/png is not supported"),
        (b"", "text/csv", "", 400, "it is empty"),
        (b"[]", "application/json", "", 400, "no list of rows"),
        (b"1,2\n3", "text/csv", "", 400, "line 2 has 1 cells, the first line has 2"),
        (b"1,x", "text/csv", "", 400, "could not convert"),
        (b"1,2,3", "text/csv", "", 400, "has the shape (rows, 3), and the model takes (rows, 2)"),
        (b"[[1, 2], [3]]", "application/json", "", 400, "input 'x'"),
        (b'[["a", "b"]]', "application/json", "", 400, "not all numbers of float32"),
        (b'{"z": [[1, 2]]}', "application/json", "", 400, "takes x, and was given z"),
        (b"{nope", "application/json", "", 400, "not application/json"),
    ],
)
def test_bad_input_is_told_in_a_sentence(double, ask, body, content_type, accept, status, message):
    answer = ask(double(), body, content_type, accept)
    assert answer.status == status
    assert message in answer.body.decode()


def test_nan_goes_through_where_the_model_has_floats(double, ask):
    assert np.isnan(json.loads(ask(double(), b"[[NaN, null]]").body)).all()


def test_what_the_runtime_refuses_is_the_callers_to_mend(put, load_as, ask):
    shape = ("shape", INT64, [2], [5, 2])
    x, y = ("x", FLOAT, [None, 2]), ("y", FLOAT, None)
    put([("Reshape", ["x", "shape"], ["y"])], [x], [y], constants=[shape])
    answer = ask(load_as("onnx"), b"1,2", "text/csv")
    assert answer.status == 400
    assert b"Unable to evaluate payload provided" in answer.body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no model", r"Model model\.onnx cannot be loaded"),
        (b"", r"Model model\.onnx cannot be loaded"),
        (None, r"needs model\.onnx, or one file \*\.onnx; at its top there is no file"),
    ],
)
def test_what_does_not_load_is_named(load_as, base_dir, content, message):
    if content is not None:
        (base_dir / "model" / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        load_as("onnx")


def test_a_script_may_leave_the_model_and_the_prediction_to_the_adapter(
    double, load_as, put_script, monkeypatch
):
    monkeypatch.setattr(sys, "path", sys.path[:])
    double()
    put_script(inference="def input_fn(body, kind): return [[len(body), 1.0]]\n")
    headers = {b"content-type": b"text/plain"}
    found = load_as("onnx").call(ModelRequest("POST", "/", headers, b"four", lambda _: None))
    sys.modules.pop("inference")
    assert (found.status, json.loads(found.body)) == (200, [[8, 2]])


def test_without_the_runtime_it_says_how_to_install_it(environment, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'onnxruntime>="):
        adapter(environment("onnx"))
