"""The section [inference_service]: where it comes from, and what is said of wrong ones."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from sagehen.base.config import load_settings
from sagehen.base.errors import SettingError
from sagehen.base.settings.inference_service import InferenceServiceSettings, filled

PREFIX = "SAGEHEN_INFERENCE_SERVICE"


def checked(**given):
    return InferenceServiceSettings.model_validate({"s3_bucket": "bucket", **given})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("model_a,model_b", ("model_a", "model_b")),
        ("[model_a, mode_b]", ("model_a", "mode_b")),
        (" a , ,b,, a ", ("a", "b")),
        ('["a", "b"]', ("a", "b")),
        ("", ()),
        ("[]", ()),
        (["a ", " b"], ("a", "b")),
        ([], ()),
    ],
)
def test_the_white_list_in_each_of_its_forms(given, read):
    assert checked(white_list=given).white_list == read


@pytest.mark.parametrize("given", [1, ["a", 1], {"a": 1}, [["a"]]])
def test_what_is_no_white_list(given):
    with pytest.raises(ValidationError, match="one text with commas, or a list"):
        checked(white_list=given)


def test_a_section_of_the_file_as_it_was_published(tmp_path):
    (tmp_path / "sagehen.toml").write_text(
        """
        [inference_service]
        s3_bucket = "sagemaker-studio-bucket"
        white_list = "model_a,model_b,model_c"
        role_arn = "arn:aws:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole-2022"
        limit = 1
        """
    )
    service = load_settings(home=tmp_path).inference_service
    assert service.is_on
    assert service.white_list == ("model_a", "model_b", "model_c")
    assert service.limit == 1


def test_variables_win_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "sagehen.toml").write_text('[inference_service]\ns3_bucket = "file"\nlimit = 2\n')
    monkeypatch.setenv(f"{PREFIX}__WHITE_LIST", "a, b")
    monkeypatch.setenv(f"{PREFIX}__LIMIT", "3")
    monkeypatch.setenv(f"{PREFIX}__NOTIFY", "Completed,Failed")
    monkeypatch.setenv(f"{PREFIX}__TYPES", json.dumps({"a": {"image": "x"}}))
    service = load_settings(home=tmp_path).inference_service
    assert (service.s3_bucket, service.limit, service.white_list) == ("file", 3, ("a", "b"))
    assert service.notify == ("Completed", "Failed")
    assert service.types["a"].image == "x"


def test_it_is_off_until_it_has_a_bucket(tmp_path, monkeypatch):
    assert not load_settings(home=tmp_path).inference_service.is_on
    monkeypatch.setenv(f"{PREFIX}__LIMIT", "3")
    with pytest.raises(SettingError, match="limit given without s3_bucket"):
        load_settings(home=tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LIMIT", "0", "limit: Input should be greater than or equal to 1, but it is '0'"),
        ("LIMIT", "many", "limit: Input should be a valid integer"),
        ("PROFILE", "new", "'published' or 'modern'"),
        ("ROLE_ARN", "me", "role_arn: String should match"),
        ("S3_BUCKET", "Not A Bucket", "s3_bucket: String should match"),
        ("STAGE", "a/b", "stage: String should match"),
        ("NOTIFY", "Done", "'Completed', 'Failed' or 'Stopped'"),
        ("EMAILS", "who", "emails: Input should be addresses such as me@example.com, but it is"),
        ("EMAILS", "a@b.c,who", "('who' is not one), but it is 'a@b.c,who'"),
        ("DATA_URI", "s3://x", "data_uri: String should match"),
        ("OUTPUT_URI", "s3://a_b/c", "output_uri: String should match"),
        ("WHITE_LIST", "a,bad type", "white_list has 'bad type', which cannot be part"),
        ("WHITE_LIST", "ü", "white_list has 'ü', which cannot be part"),
        ("TEXT_LIMIT", "{what}", "text_limit has {what}"),
        ("IMAGE", "{kind}", "image has {kind}"),
        ("INSTANCE_COUNT", "2", "instance_count is over max_instance_count"),
        ("MAX_WAIT_SECONDS", "1", "max_wait_seconds is under max_runtime_seconds"),
        ("TYPES", '{"b": {}}', "types has b, not in white_list"),
        ("TYPES", '{"a": {"what": 1}}', "types.a.what is not a setting"),
        ("WHAT", "1", "SAGEHEN_INFERENCE_SERVICE__WHAT is not a setting"),
        ("TYPES__A", "1", "SAGEHEN_INFERENCE_SERVICE__TYPES__A is not a setting"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_starts(tmp_path, monkeypatch, name, value, said):
    monkeypatch.setenv(f"{PREFIX}__S3_BUCKET", "bucket")
    monkeypatch.setenv(f"{PREFIX}__WHITE_LIST", "a")
    monkeypatch.setenv(f"{PREFIX}__{name}", value)
    with pytest.raises(SettingError) as caught:
        load_settings(home=tmp_path)
    assert said in str(caught.value)


def test_a_type_with_an_image_of_its_own_may_be_called_anything():
    assert checked(white_list=["ü"], types={"ü": {"image": "x"}}).white_list == ("ü",)
    assert checked(white_list=["bad type"], image="one-for-all").white_list == ("bad type",)


def test_an_unknown_key_in_the_file_is_said(tmp_path: Path):
    (tmp_path / "sagehen.toml").write_text('[inference_service]\ns3_bucket = "abc"\nlimits = 1\n')
    with pytest.raises(SettingError, match=r"inference_service\.limits is not a setting"):
        load_settings(home=tmp_path)


def test_what_is_filled_in_is_not_looked_at_again():
    assert filled("[{a}] {b} {c}", a="{b}", b=1) == "[{b}] 1 {c}"
