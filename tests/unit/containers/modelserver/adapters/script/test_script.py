"""The inference toolkit's contract for `code/inference.py`."""

import io

import numpy as np
import pytest

from sagehen.containers.modelserver.adapters import make_adapter
from sagehen.containers.modelserver.adapters.script.script import ScriptError
from sagehen.containers.modelserver.contract import ModelRequest, Refusal


@pytest.fixture
def load(base_dir, environment, put_script):
    def loaded(script, adapter="python", **variables):
        put_script(inference=script)
        return make_adapter(environment(adapter, **variables)).load(base_dir / "model")

    return loaded


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch):
    """A container imports its script once; here every test brings another one."""
    import sys

    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name in ("inference", "helper", "serve"):
        sys.modules.pop(name, None)


def call(model, body=b"", **headers):
    encoded = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    try:
        return model.call(ModelRequest("POST", "/invocations", encoded, body, lambda _: None))
    except Refusal as refusal:
        return refusal.answer


MEAN = """
def model_fn(model_dir): return 2
def predict_fn(data, model): return data * model
"""


def test_the_defaults_decode_and_encode_json(load):
    answer = call(load(MEAN), b"[[1, 2]]", content_type="application/json")
    assert (answer.status, answer.body, answer.content_type) == (
        200,
        b"[[2, 4]]",
        "application/json",
    )


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        ("text/csv", "text/csv", b"2.0\n4.0\n"),
        ("image/png, text/csv", "text/csv", b"2.0\n4.0\n"),
        ("text/html, application/json; q=0.9", "application/json", b"[2.0, 4.0]"),
        ("*/*", "application/json", b"[2.0, 4.0]"),
    ],
)
def test_the_first_type_accepted_that_there_is_wins(load, accept, content_type, body):
    answer = call(load(MEAN), b"1,2", content_type="text/csv", accept=accept)
    assert (answer.body, answer.content_type) == (body, content_type)


def test_a_type_with_parameters_is_read_as_the_type(load):
    answer = call(load(MEAN), b"[1.0, 2.0]", content_type="application/json; charset=UTF-8")
    assert answer.body == b"[2.0, 4.0]"


def test_numpys_own_form(load):
    sent = io.BytesIO()
    np.save(sent, np.array([1.5, 2.0]))
    model = load(MEAN)
    answer = call(
        model, sent.getvalue(), content_type="application/x-npy", accept="application/x-npy"
    )
    assert np.load(io.BytesIO(answer.body)).tolist() == [3.0, 4.0]


def test_pickles_inside_numpys_form_are_not_loaded(load):
    sent = io.BytesIO()
    np.save(sent, np.array([{}], dtype=object), allow_pickle=True)
    answer = call(load(MEAN), sent.getvalue(), content_type="application/x-npy")
    assert answer.status == 400
    assert b"allow_pickle=False" in answer.body


def test_types_that_nothing_reads_or_writes(load):
    model = load(MEAN)
    for status, headers, advice in (
        (
            415,
            {"content_type": "text/plain"},
            b"text/plain is not supported by this framework. Send ",
        ),
        (415, {}, b"None is not supported by this framework. The request names no ContentType: "),
        (
            406,
            {"content_type": "text/csv", "accept": "a/b"},
            b"a/b is not supported by this framework. Accept ",
        ),
    ):
        answer = call(model, b"1", **headers)
        assert answer.status == status
        assert answer.body.startswith(b"Content type " + advice)


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"{no json", "application/json", b"The body is not application/json: Expecting property"),
        (b"\xff\xfe", "text/csv", b"The body is not text/csv in UTF-8: "),
        (b"no numpy", "application/x-npy", b"The body is not application/x-npy: "),
        (
            b"[" * 100_000,
            "application/json",
            b"The body is not application/json: maximum recursion",
        ),
    ],
    ids=["syntax", "encoding", "format", "depth"],
)
def test_a_body_that_the_default_cannot_read_is_the_callers_error(
    load, body, content_type, message
):
    answer = call(load(MEAN), body, content_type=content_type)
    assert answer.status == 400
    assert answer.body.startswith(message)
    assert b"Traceback" not in answer.body


def test_what_the_scripts_own_functions_raise_is_the_models_error(load):
    own = MEAN + "def input_fn(data, content_type): return int(data)\n"
    answer = call(load(own), b"no number", content_type="application/json")
    assert answer.status == 500
    assert b"Traceback" in answer.body


def test_every_function_may_be_the_users_and_take_the_context(load):
    model = load("""
def model_fn(model_dir, context): return context.system_properties["model_dir"]
def input_fn(data, content_type, context): return [data, content_type]
def predict_fn(data, model): return [*data, model.rsplit("/")[-1]]
def output_fn(prediction, accept, context):
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "seen")
    prediction.append(context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes"))
    return repr(prediction), "text/x-mine"
""")
    answer = call(
        model, b"hi", content_type="text/plain", x_amzn_sagemaker_custom_attributes="trace"
    )
    assert answer.body == b"[b'hi', 'text/plain', 'model', 'trace']"
    assert answer.content_type == "text/x-mine"
    assert answer.headers == (("X-Amzn-SageMaker-Custom-Attributes", "seen"),)


def test_transform_fn_gets_text_as_text(load):
    model = load("""
def model_fn(d): return 'm'
def transform_fn(model, data, content_type, accept):
    return f"{model} {data} {content_type} {accept}"
""")
    answer = call(model, b"1,2", content_type="text/csv", accept="text/csv")
    assert (answer.body, answer.content_type) == (b"m 1,2 text/csv text/csv", "text/csv")


def test_transform_fn_excludes_the_three(load):
    with pytest.raises(ScriptError, match="Cannot use transform_fn implementation in conjunction"):
        load("def transform_fn(m, d, c, a): pass\ndef input_fn(d, c): pass\n")


def test_hooks_around_loading(load):
    model = load("""
seen = []
def pre_model_fn(model_dir): seen.append("before")
def model_fn(model_dir): seen.append("load"); return 1
def model_warmup_fn(model_dir, model): seen.append(model)
def transform_fn(model, data, content_type, accept): return str(seen)
""")
    assert call(model).body == b"['before', 'load', 1]"


def test_an_exception_is_500_with_message_and_traceback(load):
    model = load("def model_fn(d): pass\ndef predict_fn(d, m): raise KeyError('city')\n")
    answer = call(model, b"[1]", content_type="application/json")
    assert answer.status == 500
    lines = answer.body.decode().splitlines()
    assert lines[:2] == ["'city'", "Traceback (most recent call last):"]
    assert "inference.py" in lines[2]
    assert "in predict_fn" in lines[2]
    assert answer.body.count(b'  File "') == 1


def test_a_huge_message_is_cut(load):
    model = load(
        "def model_fn(d): pass\ndef transform_fn(m, d, c, a): raise ValueError('x' * 99999)\n"
    )
    assert len(call(model).body) < 20_000


def test_the_toolkits_errors_keep_their_status(load):
    model = load("""
class BaseInferenceToolkitError(Exception):
    def __init__(self, status_code, message, phrase):
        self.status_code, self.message, self.phrase = status_code, message, phrase
def model_fn(d): pass
def transform_fn(m, d, c, a): raise BaseInferenceToolkitError(422, "too hot", "Too hot")
""")
    answer = call(model)
    assert answer.status == 422
    assert answer.body.startswith(b"too hot\n")


def test_an_answer_of_the_wrong_type_says_what_to_return(load):
    answer = call(load("def model_fn(d): pass\ndef transform_fn(m, d, c, a): return {}\n"))
    assert answer.status == 500
    assert b"must return str or bytes" in answer.body


def test_a_missing_model_fn_is_asked_for(load):
    with pytest.raises(Exception, match="Please provide a model_fn implementation"):
        load("def predict_fn(d, m): return d\n")


def test_a_missing_predict_fn_is_asked_for_before_the_first_call(load):
    with pytest.raises(Exception, match="Please provide a predict_fn implementation"):
        load("def model_fn(d): pass\n")


def test_the_program_may_have_another_name_and_place(load, base_dir, put_script):
    (base_dir / "elsewhere").mkdir()
    text = (
        "import helper\ndef model_fn(d): pass\ndef transform_fn(m, d, c, a): return helper.WORD\n"
    )
    (base_dir / "elsewhere" / "serve.py").write_text(text)
    (base_dir / "elsewhere" / "helper.py").write_text("WORD = 'helped'\n")
    model = load(
        "raise ImportError('the wrong one')\n",
        SAGEMAKER_PROGRAM="serve.py",
        SAGEMAKER_SUBMIT_DIRECTORY="file:///opt/ml/elsewhere",
    )
    assert call(model).body == b"helped"


def test_a_script_for_xgboost_has_its_own_defaults(
    load, base_dir, put_model, regressor, rows, as_csv
):
    import xgboost

    put_model(base_dir / "model", regressor)
    model = load("def output_fn(p, accept): return repr(p.tolist())\n", "xgboost")
    answer = call(model, as_csv(rows), content_type="text/csv")
    assert answer.body.decode() == repr(regressor.predict(xgboost.DMatrix(rows)).tolist())


@pytest.mark.parametrize("status", [100, 99, 1000, 600])
def test_what_is_no_status_of_an_answer_is_the_scripts_error(load, status):
    model = load(f"""
def model_fn(d): pass
def transform_fn(m, d, c, a, context):
    context.set_response_status({status})
    return "x"
""")
    answer = call(model)
    assert answer.status == 500
    assert b"it must be from 200 to 599" in answer.body
