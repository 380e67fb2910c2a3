"""Where settings come from, and what is said of wrong ones."""

from pathlib import Path

import pytest
from sqlalchemy import make_url

from sagehen.config import load_settings, pip_variables
from sagehen.errors import SettingError


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
    with pytest.raises(SettingError, match="no configuration file"):
        load_settings(tmp_path / "none.toml", home=tmp_path)
    monkeypatch.setenv("SAGEHEN_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SettingError, match="no configuration file"):
        load_settings(home=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'home = "/elsewhere"', "home cannot stand in a file"),
        (b'config = "/elsewhere"', "config cannot stand in a file"),
        (b'region = "\xff"', "malformed"),
        (b"region = ", "malformed"),
        (b'region = "a b"', "region"),
        (b"prot = 9000", "prot is not a setting"),
        ('account_id = "٠٠٠٠٠٠٠٠٠٠٠٠"'.encode(), "account_id"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "sagehen.toml").write_bytes(text)
    with pytest.raises(SettingError, match=said):
        load_settings(home=tmp_path)


def test_a_table_in_the_environment_is_json_and_adds_to_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sagehen.toml").write_text('images = {a = ["one"], b = ["two"]}\nport = 1\n')
    monkeypatch.setenv("SAGEHEN_IMAGES", '{"b": ["three"], "c": []}')
    monkeypatch.setenv("SAGEHEN_PORT", "")  # says nothing
    settings = load_settings(home=tmp_path)
    assert settings.images == {"a": ["one"], "b": ["three"], "c": []}
    assert settings.port == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("IMAGES", "{", "SAGEHEN_IMAGES is malformed"),
        ("IMAGES", "3", "images: Input should be a valid dictionary, but it is 3"),
        ("INFERENCE_SERVICE", "3", "inference_service: Input should be a valid dictionary"),
        ("INFERENCE_SERVICE", '{"limits": 1}', "inference_service.limits is not a setting"),
        ("PORT", "70000", "port: Input should be less than or equal to 65535, but it is '70000'"),
        ("ACCESS_LOG", "perhaps", "access_log: Input should be a valid boolean"),
    ],
)
def test_what_is_wrong_in_the_environment_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    monkeypatch.setenv(f"SAGEHEN_{name}", text)
    with pytest.raises(SettingError) as caught:
        load_settings(home=tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["plain", "what?mode=ro", "50%25 #1", "a b"])
def test_the_state_lies_in_the_home_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    settings = load_settings(home=tmp_path / name)
    assert make_url(settings.state_url).database == str(tmp_path / name / "state.db")


def test_the_users_settings_of_pip_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pip_variables({"PATH": "/bin"}) == {}
    file = tmp_path / ".config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.touch()
    given = {"PIP_INDEX_URL": "https://mine/", "HTTPS_PROXY": "http://proxy", "PIP_CERT": "/own"}
    assert pip_variables({**given, "REQUESTS_CA_BUNDLE": "/other"}) == {
        "PIP_INDEX_URL": "https://mine/",
        "PIP_PROXY": "http://proxy",
        "PIP_CERT": "/own",
        "PIP_CONFIG_FILE": str(file),
    }
