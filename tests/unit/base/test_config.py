"""Where settings come from, and what is said of wrong ones."""

import pickle
from pathlib import Path

import pytest
from sqlalchemy import make_url

from sagehen.base.config import load_settings
from sagehen.base.errors import SettingError
from sagehen.base.settings import Settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "CONFIG", "REGION"):
        monkeypatch.delenv(f"SAGEHEN_{name}", raising=False)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sagehen.toml").write_text('region = "from-file"\nport = 1\nlog_level = "DEBUG"\n')
    monkeypatch.setenv("SAGEHEN_REGION", "from-variable")
    settings = load_settings(home=tmp_path, port=2)
    assert (settings.port, settings.region, settings.log_level) == (2, "from-variable", "DEBUG")


def test_another_file_is_known_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.toml").write_text('region = "eu-west-1"\n')
    monkeypatch.chdir(tmp_path)
    settings = load_settings(Path("other.toml"), home=tmp_path)
    assert (settings.region, settings.config) == ("eu-west-1", tmp_path / "other.toml")
    monkeypatch.setenv("SAGEHEN_CONFIG", "other.toml")
    assert load_settings(home=tmp_path).model_dump() == settings.model_dump()


def test_a_file_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="no settings file"):
        load_settings(tmp_path / "none.toml", home=tmp_path)
    monkeypatch.setenv("SAGEHEN_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SettingError, match="no settings file"):
        load_settings(home=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'home = "/elsewhere"', "home cannot be set in a settings file"),
        (b'config = "/elsewhere"', "config cannot be set in a settings file"),
        (b'region = "\xff"', "malformed"),
        (b"region = ", "malformed"),
        (b'region = "a b"', "region"),
        (b"prot = 9000", "prot is not a setting"),
        (b"smtp_prot = 1", "Did you mean smtp_port?"),
        (b'launcher = "podman"', "launcher"),
        (b'[images]\na = "dokcer"', "a command as a list of texts, or `docker` or `process`"),
        (b'docker_host = "tcp://10.0.0.1:2375"', "docker_host"),
        ('account_id = "٠٠٠٠٠٠٠٠٠٠٠٠"'.encode(), "account_id"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "sagehen.toml").write_bytes(text)
    with pytest.raises(SettingError, match=said):
        load_settings(home=tmp_path)


@pytest.mark.parametrize("name", ["plain", "what?mode=ro", "50%25 #1", "a b"])
def test_the_state_lies_in_the_home_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    settings = load_settings(home=tmp_path / name)
    assert make_url(settings.state_url).database == str(tmp_path / name / "state.db")


@pytest.mark.parametrize("given", ["a, b", '["a", "b"]', "[a, b]"])
def test_a_list_is_json_or_one_text_with_commas(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEHEN_INFERENCE_SERVICE__S3_BUCKET", "bucket")
    monkeypatch.setenv("SAGEHEN_INFERENCE_SERVICE__WHITE_LIST", given)
    assert load_settings(home=tmp_path).inference_service.white_list == ("a", "b")


@pytest.mark.parametrize("given", ["7", "7,8"])
def test_a_text_of_digits_is_a_text(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEHEN_INFERENCE_SERVICE__S3_BUCKET", "bucket")
    monkeypatch.setenv("SAGEHEN_INFERENCE_SERVICE__WHITE_LIST", given)
    assert load_settings(home=tmp_path).inference_service.white_list == tuple(given.split(","))


@pytest.mark.parametrize("given", ["{", "a", "[1]"])
def test_a_table_in_a_variable_is_json(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEHEN_IMAGES", given)
    with pytest.raises(SettingError, match=r"images: Input should be a valid dictionary"):
        load_settings(home=tmp_path)


def test_a_table_that_is_none_is_not_shown_for_it_may_hold_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEHEN_OBJECT_STORE_OPTIONS", '{"secret_access_key": "hush"')
    with pytest.raises(SettingError, match=r"object_store_options.*JSON in a variable") as raised:
        load_settings(home=tmp_path)
    assert "hush" not in str(raised.value)


def test_what_is_handed_on_is_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that are given settings need nothing of what read them."""
    monkeypatch.setenv("SAGEHEN_SMTP_PASSWORD", "secret")
    settings = load_settings(home=tmp_path)
    assert type(settings) is Settings
    assert pickle.loads(pickle.dumps(settings)) == settings
