"""What `sagehen env` prints: variables for a shell or a program, also where it fails."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import botocore.session
import pytest

from sagehen.app.commands.environment import ClientVariables, Format, render
from sagehen.base.home import Home, prepare_home
from support.cli import Ended, run_command

ODD = """it's "$HOME" \\ `x`"""
UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture
def home(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(short_path))
    for name in ("AWS_DATA_PATH", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    home = prepare_home(short_path / "home")
    home.credentials.write_text('{"access_key": "AKSHX", "secret_key": "secret"}')
    home.address.write_text("http://127.0.0.1:4321")
    return home


def told(home: Home, *words: str) -> SimpleNamespace:
    ended = run_command("env", "--home", home.path, "--format", "json", *words)
    assert ended.status == 0, ended.stderr
    return SimpleNamespace(values=json.loads(ended.stdout), stderr=ended.stderr)


def in_a_shell(printed: str, **before: str) -> tuple[int, dict[str, str]]:
    """What a shell with `before` has after it evaluated that, and how the evaluation ended."""
    script = 'eval "$1"; echo "$?"; env -0'
    ran = subprocess.run(
        ["/bin/sh", "-c", script, "sh", printed],
        env={"PATH": "/usr/bin:/bin", **before},
        capture_output=True,
        text=True,
        check=True,
    )
    status, _, rest = ran.stdout.partition("\n")
    return int(status), dict(one.split("=", 1) for one in rest.split("\0") if "=" in one)


class TestAFailure:
    def failed(self, short_path: Path, *words: str) -> Ended:
        ended = run_command("env", "--home", short_path / "none", *words)
        assert ended.status != 0
        assert ended.stderr
        return ended

    @pytest.mark.parametrize("words", [(), ("--hoem", "x"), ("--format", "csh")])
    def test_points_a_shell_at_nothing(self, short_path: Path, words: tuple[str, ...]) -> None:
        real = {"AWS_ACCESS_KEY_ID": "AKIAREAL", "AWS_PROFILE": "work", "AWS_SESSION_TOKEN": "t"}
        status, after = in_a_shell(self.failed(short_path, *words).stdout, **real)
        assert status == 1
        assert after["AWS_ENDPOINT_URL"] == UNREACHABLE
        assert after["AWS_ACCESS_KEY_ID"] != "AKIAREAL"
        assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & set(after)

    def test_is_told_in_the_form_that_was_asked_for(self, short_path: Path) -> None:
        for words in (("--format", "json"), ("--format=json", "--hoem", "x")):
            values = json.loads(self.failed(short_path, *words).stdout)
            assert values["AWS_ENDPOINT_URL"] == UNREACHABLE
        assert self.failed(short_path, "--format", "fish").stdout.endswith("\nfalse\n")

    def test_of_any_kind_does(self, home: Home) -> None:
        home.clients.write_text("in the way of a folder")
        ended = run_command("env", "--home", home.path)
        assert ended.status == 1
        assert "cannot be written" in ended.stderr
        assert UNREACHABLE in ended.stdout

    def test_help_is_none(self) -> None:
        ended = run_command("env", "--help")
        assert ended.status == 0
        assert UNREACHABLE not in ended.stdout


def test_a_shell_keeps_every_character() -> None:
    variables = ClientVariables({"ODD": ODD}, absent=("GONE",))
    status, after = in_a_shell(render(variables, Format.SH), GONE="x")
    assert (status, after["ODD"]) == (0, ODD)
    assert "GONE" not in after


class TestUnset:
    """`eval "$(sagehen env --unset)"`."""

    REAL: ClassVar = {
        "AWS_ACCESS_KEY_ID": "AKIAREAL",
        "AWS_SECRET_ACCESS_KEY": "real-secret",
        "AWS_PROFILE": "work",
        "AWS_DATA_PATH": "/own models",
        "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
    }

    def evaluated(
        self, monkeypatch: pytest.MonkeyPatch, before: dict[str, str], *words: object
    ) -> dict[str, str]:
        """The variables of a shell with `before` after `eval "$(sagehen env words…)"`."""
        with monkeypatch.context() as shell:
            for name in (*self.REAL, "AWS_ENDPOINT_URL", "AWS_REGION"):
                shell.delenv(name, raising=False)
            for name, value in before.items():
                shell.setenv(name, value)
            printed = run_command("env", *words).stdout
        assert "real-secret" not in printed
        status, after = in_a_shell(printed, **before)
        assert status == 0
        return {name: after[name] for name in after if name not in ("PWD", "_", "SHLVL", "PATH")}

    def test_a_shell_gets_back_what_it_had(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pointed = self.evaluated(monkeypatch, self.REAL, "--home", home.path)
        assert pointed["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4321"
        assert "AWS_PROFILE" not in pointed
        again = self.evaluated(monkeypatch, pointed, "--home", home.path)
        assert self.evaluated(monkeypatch, again, "--unset") == self.REAL

    def test_a_shell_that_had_nothing_has_nothing(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pointed = self.evaluated(monkeypatch, {}, "--home", home.path)
        assert self.evaluated(monkeypatch, pointed, "--unset") == {}

    def test_a_shell_that_points_nowhere_gets_back_what_it_had(
        self, short_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed = run_failed(monkeypatch, self.REAL, short_path / "none")
        assert self.evaluated(monkeypatch, failed, "--unset") == self.REAL

    def test_a_shell_that_does_not_point_at_a_server_stays_as_it_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = {"AWS_ENDPOINT_URL": "http://localhost:4566"}
        for before in (self.REAL, self.REAL | other):
            assert self.evaluated(monkeypatch, before, "--unset") == before

    def test_fish(self) -> None:
        given_back = ClientVariables({}, ("GONE",), {"AWS_PROFILE": "BEFORE"})
        assert render(given_back, Format.FISH) == (
            'set -gx AWS_PROFILE "$BEFORE";\nset -e GONE;\ntrue\n'
        )


def run_failed(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], home: Path
) -> dict[str, str]:
    with monkeypatch.context() as shell:
        for name, value in before.items():
            shell.setenv(name, value)
        ended = run_command("env", "--home", home)
    assert ended.status == 1
    return in_a_shell(ended.stdout, **before)[1]


def test_other_forms() -> None:
    variables = ClientVariables({"PLAIN": "http://h:1", "ODD": "it's \\"}, absent=("GONE",))
    assert render(variables, Format.FISH) == (
        "set -gx PLAIN 'http://h:1';\nset -gx ODD 'it\\'s \\\\';\nset -e GONE;\ntrue\n"
    )
    assert render(variables, Format.DOTENV) == 'PLAIN=http://h:1\nODD="it\'s \\\\"\n'
    assert json.loads(render(variables, Format.JSON)) == dict(variables.values)


def test_what_would_win_over_the_address_goes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stronger = {
        "AWS_ENDPOINT_URL_S3": "https://s3.amazonaws.com",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    }
    for name, value in stronger.items():
        monkeypatch.setenv(name, value)
    _, after = in_a_shell(run_command("env", "--home", home.path).stdout, **stronger)
    assert not set(stronger) & set(after)
    assert after["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4321"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (None, "http://127.0.0.1:4321"),
        ("https://sts.us-east-1.amazonaws.com", "http://127.0.0.1:4321"),
        ("https://cn-north-1.queue.amazonaws.com.cn", "http://127.0.0.1:4321"),
        ("http://127.0.0.1:9100", "http://127.0.0.1:9100"),
        ("http://h", "http://h"),
    ],
)
@pytest.mark.parametrize("service", ["sqs", "sts"])
def test_addresses_in_aws_are_replaced_and_others_hold(
    home: Home, service: str, given: str | None, used: str
) -> None:
    values = told(home).values
    session = botocore.session.Session()
    session.set_config_variable("data_path", values["AWS_DATA_PATH"])
    client = session.create_client(service, region_name="us-east-1", endpoint_url=given)
    model = client.meta.service_model
    operation = model.operation_model(model.operation_names[0])
    resolver = client._ruleset_resolver
    assert resolver.construct_endpoint(operation, {}, {}).url == used


def test_the_users_own_folder_of_data_is_kept_behind_ours(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = told(home).values["AWS_DATA_PATH"]
    monkeypatch.setenv("AWS_DATA_PATH", f"{ours}:/mine")
    assert told(home).values["AWS_DATA_PATH"] == f"{ours}:/mine"


class TestConfigurationsOfTheSdk:
    def test_one_of_the_users_choice_stays_and_that_is_said(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", "/mine.yaml")
        env = told(home)
        assert "SAGEMAKER_USER_CONFIG_OVERRIDE" not in env.values
        assert "stays /mine.yaml" in env.stderr

    def test_one_that_is_not_read_any_more_is_named(self, home: Home, short_path: Path) -> None:
        assert told(home).stderr == ""
        users = short_path / ".config" / "sagemaker" / "config.yaml"
        users.parent.mkdir(parents=True)
        users.touch()
        assert str(users) in told(home).stderr.replace("\n", "")

    def test_ours_is_given_again_in_a_shell_that_has_it(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = told(home).values["SAGEMAKER_USER_CONFIG_OVERRIDE"]
        monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", ours)
        env = told(home)
        assert env.values["SAGEMAKER_USER_CONFIG_OVERRIDE"] == ours
        assert env.stderr == ""


def test_names_of_variables_are_no_commands(
    home: Home, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may hold any name, and a shell evaluates what is printed."""
    injected = short_path / "injected"
    for prefix in ("BEFORE_SAGEHEN_AWS_", "AWS_ENDPOINT_URL_"):
        monkeypatch.setenv(f"{prefix}X;mkdir {injected};", "x")
    monkeypatch.setenv("BEFORE_SAGEHEN_PATH", "/elsewhere")
    for words in (("--home", home.path), ("--unset",)):
        _, after = in_a_shell(run_command("env", *words).stdout, BEFORE_SAGEHEN_PATH="/elsewhere")
        assert not injected.exists()
        assert after["PATH"] == "/usr/bin:/bin"
