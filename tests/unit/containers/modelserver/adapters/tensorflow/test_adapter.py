import json
import sys
import warnings

import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.script.script import ScriptError
from sagehen.containers.modelserver.adapters.shared.model_file import ModelFileError
from sagehen.containers.modelserver.adapters.tensorflow.adapter import adapter
from sagehen.containers.modelserver.adapters.tensorflow.bundles import import_tensorflow
from sagehen.containers.modelserver.contract import ModelRequest, Refusal


@pytest.fixture(scope="module")
def keras_came():
    """Whether importing TensorFlow as the adapter does imported Keras too."""
    before = "keras" in sys.modules or "tensorflow" in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_tensorflow()
    return "keras" in sys.modules and not before


@pytest.fixture(scope="module")
def tf(keras_came):
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    return tensorflow


@pytest.fixture
def put(tf, base_dir):
    """Writes SavedModels of these functions, by signature, given with their input's types."""

    def write(place="1", **signatures):
        module = tf.Module()
        module.kept = {
            name: tf.function(function, input_signature=inputs)
            for name, (function, *inputs) in signatures.items()
        }
        path = base_dir / "model" / place
        tf.saved_model.save(module, str(path), signatures=module.kept)

    return write


@pytest.fixture
def pairs(tf):
    return tf.TensorSpec([None, 2], tf.float32, name="x")


@pytest.fixture
def double(put, pairs):
    def write(place="1", factor=2):
        put(place, serving_default=(lambda x: {"y": x * factor}, pairs))

    return write


@pytest.fixture
def two_inputs(tf, put, load_as):
    """Of a (rows, 2) and b (rows): their sum and the largest of a."""
    a, b = tf.TensorSpec([None, 2], tf.float32, name="a"), tf.TensorSpec([None], tf.int32, name="b")

    def both(a, b):
        return {"sum": tf.reduce_sum(a, 1) + tf.cast(b, tf.float32), "top": tf.reduce_max(a, 1)}

    put(serving_default=(both, a, b))
    return load_as("tensorflow")


@pytest.fixture
def invoke():
    """Asks as the server does: with all headers."""

    def invoked(model, body, content_type="application/json", accept="", attributes=""):
        headers = {
            b"content-type": content_type.encode(),
            b"accept": accept.encode(),
            b"x-amzn-sagemaker-custom-attributes": attributes.encode(),
        }
        request = ModelRequest("POST", "/invocations", headers, body, lambda _: None)
        if hasattr(model, "call"):
            return model.call(request)
        try:
            (prediction,) = model.predict([model.decode_request(request)])
            return model.encode(prediction, accept)
        except Refusal as refusal:
            return refusal.answer

    return invoked


def test_keras_waits_until_it_is_asked_for(tf, keras_came):
    """It takes as long as all the rest, and 130 MB."""
    assert not keras_came
    assert "keras.src.optimizers" not in sys.modules or sys.modules["keras.src.optimizers"]


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"instances": [[1, 2], [3, 4]]}', "application/json", [[2, 4], [6, 8]]),
        (b'{"instances": [{"x": [1, 2]}]}', "application/json", [[2, 4]]),
        (b"[[1, 2], [3, 4]]", "application/json", [[2, 4], [6, 8]]),
        (b"[1, 2]", "application/json", [[2, 4]]),
        (b'{"x": [1, 2]}', "application/json", [[2, 4]]),
        (b"[1, 2]\n[3, 4]\n", "application/jsonlines", [[2, 4], [6, 8]]),
        (b"[1, 2] [3, 4]", "application/jsons", [[2, 4], [6, 8]]),
        (b"1,2\n3,4", "text/csv", [[2, 4], [6, 8]]),
        (b".5, 2", "text/csv; charset=utf-8", [[1, 4]]),
    ],
)
def test_each_form_of_a_request_gives_predictions(
    double, load_as, invoke, body, content_type, expected
):
    double()
    answer = invoke(load_as("tensorflow"), body, content_type)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body) == {"predictions": expected}


def test_columns_give_outputs_and_the_accepted_type_is_said_back(double, load_as, invoke):
    double()
    model = load_as("tensorflow")
    answer = invoke(model, b'{"inputs": [[1, 2]]}', accept="application/jsonlines, */*")
    assert json.loads(answer.body) == {"outputs": [[2, 4]]}
    assert answer.content_type == "application/jsonlines"


def test_several_inputs_and_outputs(two_inputs, invoke):
    rows = b'{"instances": [{"a": [1, 2], "b": 10}, {"a": [3, 4], "b": 20}]}'
    assert json.loads(invoke(two_inputs, rows).body) == {
        "predictions": [{"sum": 13, "top": 2}, {"sum": 27, "top": 4}]
    }
    columns = b'{"inputs": {"a": [[1, 2], [3, 4]], "b": [10, 20]}}'
    assert json.loads(invoke(two_inputs, columns).body) == {
        "outputs": {"sum": [13, 27], "top": [2, 4]}
    }


def test_several_requests_are_predicted_together(double, load_as, monkeypatch):
    double()
    model = load_as("tensorflow")
    batch = [model.decode(body, "text/csv") for body in (b"1,1", b"2,2\n3,3", b"0,0")]
    made = []
    run = batch[0].signature.run
    monkeypatch.setattr(
        batch[0].signature, "run", lambda arrays: made.append(len(arrays["x"])) or run(arrays)
    )
    found = [outputs["y"].tolist() for outputs, _ in model.predict(batch)]
    assert found == [[[2, 2]], [[4, 4], [6, 6]], [[0, 0]]]
    assert made == [4]


def test_custom_attributes_choose_model_and_version(double, load_as, invoke):
    for place, factor in (("wine/1", 2), ("wine/10", 10), ("house/007", 7)):
        double(place, factor)
    model = load_as("tensorflow")

    def first(attributes):
        return json.loads(invoke(model, b"[1, 1]", attributes=attributes).body)

    assert first("") == {"predictions": [[7, 7]]}
    assert first("mine=x,tfs-model-name=wine") == {"predictions": [[10, 10]]}
    assert first("tfs-model-name=wine,tfs-model-version=1") == {"predictions": [[2, 2]]}
    unknown = invoke(model, b"[1, 1]", attributes="tfs-model-name=wine,tfs-model-version=2")
    assert (unknown.status, json.loads(unknown.body)) == (
        404,
        {"error": "Servable not found for request: Specific(wine, 2)"},
    )
    assert ("x-sagehen-by-model", "1") in unknown.headers
    chosen = load_as("tensorflow", SAGEMAKER_TFS_DEFAULT_MODEL_NAME="wine")
    assert json.loads(invoke(chosen, b"[1, 1]").body) == {"predictions": [[10, 10]]}
    with pytest.raises(ModelFileError, match="archive has house, wine"):
        load_as("tensorflow", SAGEMAKER_TFS_DEFAULT_MODEL_NAME="tree")


def test_a_signature_is_chosen_by_its_name(put, pairs, load_as, invoke):
    put(serving_default=(lambda x: {"y": x}, pairs), negated=(lambda x: {"y": -x}, pairs))
    model = load_as("tensorflow")
    body = b'{"signature_name": "negated", "instances": [[1, 2]]}'
    assert json.loads(invoke(model, body).body) == {"predictions": [[-1, -2]]}
    answer = invoke(model, b'{"signature_name": "other", "instances": [[1, 2]]}')
    assert (answer.status, json.loads(answer.body)["error"]) == (
        400,
        'Serving signature name: "other" not found in signature def',
    )


def test_examples_are_classified_and_regressed(tf, put, load_as, invoke):
    """As the SavedModels of estimators are: serialized examples in."""
    examples = tf.TensorSpec([None], tf.string, name="inputs")

    def total(inputs):
        features = {name: tf.io.FixedLenFeature([1], tf.float32) for name in ("a", "b")}
        read = tf.io.parse_example(inputs, features)
        return read["a"] + read["b"]

    def classified(inputs):
        scores = tf.concat([total(inputs), -total(inputs)], 1)
        return {"scores": scores, "classes": tf.fill(tf.shape(scores), "any")}

    put(
        serving_default=(lambda inputs: {"outputs": total(inputs)}, examples),
        kinds=(classified, examples),
    )
    model = load_as("tensorflow")
    body = b'{"context": {"a": 1.0}, "examples": [{"b": 2.0}, {"b": 3.0}]}'
    answer = invoke(model, body, attributes="tfs-method=regress")
    assert json.loads(answer.body) == {"results": [3, 4]}
    body = b'{"signature_name": "kinds", "examples": [{"a": 1.0, "b": 2.0}]}'
    answer = invoke(model, body, attributes="tfs-method=classify")
    assert json.loads(answer.body) == {"results": [[["any", 3.0], ["any", -3.0]]]}
    for method in ("classify", "sing"):
        answer = invoke(
            model, b'{"examples": [{"a": 1.0, "b": 1.0}]}', attributes=f"tfs-method={method}"
        )
        assert answer.status == 400


def test_text_and_bytes(tf, put, load_as, invoke):
    words = tf.TensorSpec([None], tf.string, name="words")
    put(serving_default=(lambda words: {"same": words}, words))
    model = load_as("tensorflow")
    expected = {"predictions": ["a, b", "é", {"b64": "/w=="}]}
    body = '{"instances": ["a, b", "é", {"b64": "/w=="}]}'.encode()
    assert json.loads(invoke(model, body).body) == expected
    assert json.loads(invoke(model, b'"a, b"\n"c"', "text/csv").body)["predictions"] == [
        "a, b",
        "c",
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_keras_file_is_served(tf, base_dir, load_as, invoke):
    keras = tf.keras
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.set_weights([np.array([[1.0], [2.0]]), np.array([3.0])])
    model.save(base_dir / "model" / "wine.keras")
    answer = invoke(load_as("tensorflow"), b"1,1\n2,2", "text/csv")
    assert json.loads(answer.body) == {"predictions": [[6.0], [9.0]]}


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"1,2", "text/plain", 415, "Unsupported Media Type: text/plain"),
        (b"1,2", "", 415, "Unsupported Media Type: Unknown"),
        (b"", "application/json", 400, "JSON Parse error: the body is empty"),
        (b" ", "text/csv", 400, "CSV Parse error: the body is empty"),
        (b"{nope", "application/json", 400, "JSON Parse error"),
        (b"[" * 100_000, "application/json", 400, "JSON Parse error"),
        (b"1,2\n3", "text/csv", 400, "input 'x'"),
        (b"1,x", "text/csv", 400, "CSV Parse error: could not convert string to float"),
        (b"1,2,3", "text/csv", 400, "has the shape (rows, 3), and the model takes (rows, 2)"),
        (b"[1, 2, 3]", "application/json", 400, "input 'x' has the shape (rows, 3)"),
        (b'{"z": [1, 2]}', "application/json", 400, "each row must be an object of x"),
        (b'{"examples": [1]}', "application/json", 400, "Missing 'inputs' or 'instances' key"),
        (b'{"instances": []}', "application/json", 400, "it has no list of rows"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    double, load_as, invoke, body, content_type, status, message
):
    double()
    answer = invoke(load_as("tensorflow"), body, content_type)
    assert (answer.status, answer.content_type) == (status, "application/json")
    assert message in json.loads(answer.body)["error"]


def test_nan_goes_through_and_an_unknown_accept_gets_json(double, load_as, invoke):
    double()
    answer = invoke(load_as("tensorflow"), b"[NaN, 1]", accept="image/png")
    assert answer.content_type == "application/json"
    ((nan, two),) = json.loads(answer.body)["predictions"]
    assert (np.isnan(nan), two) == (True, 2)


def test_what_tensorflow_refuses_is_the_callers_to_mend(tf, put, pairs, load_as, invoke):
    put(serving_default=(lambda x: {"y": x @ x}, pairs))
    answer = invoke(load_as("tensorflow"), b"[1, 2]")
    assert answer.status == 400
    assert "Matrix size-incompatible" in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "needs a SavedModel in a folder named by its version"),
        ({"saved_model.pb": b""}, "put it into a folder named by its version"),
        ({"1/saved_model.pb": b"no model"}, "Model 1 cannot be loaded"),
        ({"a.keras": b"no model"}, r"Model a\.keras cannot be loaded"),
        ({"a.keras": b"", "b.keras": b""}, r"several models, a\.keras, b\.keras"),
        ({"a.keras": b"", "1/saved_model.pb": b""}, r"both a\.keras and a SavedModel"),
    ],
)
def test_what_does_not_load_is_named(load_as, base_dir, files, message):
    for name, content in files.items():
        (base_dir / "model" / name).parent.mkdir(exist_ok=True)
        (base_dir / "model" / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        load_as("tensorflow")


@pytest.fixture
def scripted(double, load_as, put_script, monkeypatch):
    """A model that doubles, behind a script."""

    def loaded(script):
        monkeypatch.setattr(sys, "path", sys.path[:])
        double()
        put_script(inference=script)
        try:
            return load_as("tensorflow")
        finally:
            sys.modules.pop("inference", None)

    return loaded


def test_input_handler_and_output_handler(scripted, invoke):
    model = scripted(
        "import json\n"
        "def input_handler(data, context):\n"
        "    assert context.request_content_type == 'application/x-pairs'\n"
        "    numbers = data.read().decode().split()\n"
        "    return json.dumps({'instances': [list(map(float, numbers))]})\n"
        "def output_handler(response, context):\n"
        "    if response.status_code != 200:\n"
        "        raise ValueError(response.content.decode())\n"
        "    return response.content, context.accept_header\n"
    )
    answer = invoke(model, b"1 2", "application/x-pairs")
    assert (answer.status, json.loads(answer.body)) == (200, {"predictions": [[2, 4]]})
    answer = invoke(model, b"1 2 3", "application/x-pairs")
    assert answer.status == 500
    assert "the model takes (rows, 2)" in json.loads(answer.body)["error"]


def test_handlers_may_import_the_modules_of_awss_images(scripted, invoke):
    model = scripted(
        "from sagemaker_containers.beta.framework import content_types, encoders\n"
        "def input_handler(data, context):\n"
        "    rows = encoders.decode(data.read().decode(), content_types.CSV)\n"
        "    return {'instances': [rows.tolist()]}\n"
        "def output_handler(response, context):\n"
        "    return response.content, content_types.JSON\n"
    )
    answer = invoke(model, b"1,2", "text/csv")
    assert json.loads(answer.body) == {"predictions": [[2, 4]]}


def test_a_handler_asks_over_http(scripted, invoke):
    model = scripted(
        "import requests\n"
        "def handler(data, context):\n"
        "    answer = requests.post(context.rest_uri, data=data.read())\n"
        "    known = requests.get(context.rest_uri.partition(':predict')[0]).json()\n"
        "    version = known['model_version_status'][0]['version']\n"
        "    return answer.text + version + str(answer.status_code), 'text/plain'\n"
    )
    answer = invoke(model, b'{"instances": [[1, 2]]}')
    assert (answer.body, answer.content_type) == (
        b'{"predictions": [[2.0, 4.0]]}1200',
        "text/plain",
    )
    assert b"Missing 'inputs'" in invoke(model, b"{}").body


def test_functions_of_the_toolkit_work_too(scripted, invoke):
    model = scripted("def output_fn(y, accept): return str(float(y.sum()))\n")
    assert invoke(model, b"1,2", "text/csv").body == b"6.0"


def test_half_a_pair_of_handlers_is_refused(scripted):
    with pytest.raises(ScriptError, match="input_handler and output_handler go together"):
        scripted("def input_handler(data, context): pass\n")


def test_libraries_beside_the_script_are_found(scripted, invoke, base_dir):
    lib = base_dir / "model" / "code" / "lib"
    lib.mkdir(parents=True)
    (lib / "sagehen_test_lib.py").write_text("WORD = 'found'\n")
    model = scripted(
        "import sagehen_test_lib as lib\ndef handler(d, c): return lib.WORD, c.accept_header\n"
    )
    assert invoke(model, b"").body == b"found"


def test_without_tensorflow_it_says_how_to_install_it(environment, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'tensorflow-cpu>="):
        adapter(environment("tensorflow"))
