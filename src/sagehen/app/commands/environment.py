"""`sagehen env`: points AWS clients at a server.

After a failure it points them nowhere: `eval "$(sagehen env)"` loses the exit status, and an
unchanged shell would create endpoints at AWS, for money.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sagehen.base.address import client_url
from sagehen.base.config import load_settings
from sagehen.base.credentials import Credentials, load_credentials
from sagehen.base.errors import HomeError
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.base.terminal import ConfigOption, HomeOption, err, plain_errors
from sagehen.base.user_environment import ClientChoices, client_choices

__all__ = ["ClientVariables", "EnvCommand", "Format", "env", "render"]

UNREACHABLE_URL = "http://127.0.0.1:9"
"""the discard port, where nothing listens"""
_NO_KEY = "sagehen-env-failed"
_FIXED = {"sts": "2011-06-15", "sqs": "2012-11-05"}
"""API versions of services whose address some client sets itself, over AWS_ENDPOINT_URL: the
SageMaker SDK for STS, the AWS CLI 1 for SQS"""
_ROLE = "SagehenRole"  # of `sagehen.services.identity.iam`, slow to import


class Format(StrEnum):
    """Output formats."""

    SH = "sh"
    FISH = "fish"
    JSON = "json"
    DOTENV = "dotenv"


@dataclass(frozen=True)
class ClientVariables:
    """Variables to set and to unset."""

    values: Mapping[str, str]
    absent: tuple[str, ...] = ()
    is_failure: bool = field(default=False)


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="For bash and zsh (sh), fish, a program (json), or a .env file."),
]


class EnvCommand(TyperCommand):
    """Prints variables that point nowhere if its options are wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", 1) != 0:  # 0 after --help
                _write(_nowhere(client_choices()), _format_of(given))
            raise


def env(
    format: FormatOption = Format.SH, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """Print the variables that point AWS clients at the server: eval "$(sagehen env)"."""
    choices = client_choices()
    with plain_errors(), _or_nowhere(choices, format):
        settings = load_settings(config, home=home)
        place = Home(settings.home)
        credentials = load_credentials(place.credentials)
        if place.address.exists():
            url = place.address.read_text()
            if place.reachable.exists() and (others := place.reachable.read_text()):
                _note(f"On other machines: AWS_ENDPOINT_URL={others.splitlines()[0]}")
        else:
            url = client_url(settings.host, settings.port)
            _note(f"No server runs with the home {place.path} now; start it: sagehen up")
        files = _write_files(place, url, settings)
        _write(_pointed_at(url, credentials, settings, files, choices), format)
    _tell_of_configurations(files.configuration, choices)


@contextmanager
def _or_nowhere(choices: ClientChoices, format: Format) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _write(_nowhere(choices), format)
        raise


def _pointed_at(
    url: str,
    credentials: Credentials,
    settings: Settings,
    files: "_ClientFiles",
    choices: ClientChoices,
) -> ClientVariables:
    others = [one for one in choices.data_path if one != str(files.data)]
    values = {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_DATA_PATH": os.pathsep.join([str(files.data), *others]),
    }
    if choices.sdk_configuration in (None, str(files.configuration)):
        values["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(files.configuration)
    return ClientVariables(values, _absent(choices))


def _nowhere(choices: ClientChoices) -> ClientVariables:
    # Also set keys: a client too old for AWS_ENDPOINT_URL would use the user's own at AWS.
    values = {
        "AWS_ENDPOINT_URL": UNREACHABLE_URL,
        "AWS_ACCESS_KEY_ID": _NO_KEY,
        "AWS_SECRET_ACCESS_KEY": _NO_KEY,
    }
    return ClientVariables(values, _absent(choices), is_failure=True)


def _absent(choices: ClientChoices) -> tuple[str, ...]:
    # A real account's token or profile, or one service's endpoint, would take precedence.
    return ("AWS_SESSION_TOKEN", "AWS_PROFILE", *choices.stronger)


def render(variables: ClientVariables, format: Format) -> str:
    return _RENDER[format](variables)


def _as_sh(variables: ClientVariables) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.values.items()]
    lines.append("unset " + " ".join(variables.absent))
    return "\n".join([*lines, *(["false"] if variables.is_failure else [])]) + "\n"


def _as_fish(variables: ClientVariables) -> str:
    lines = [f"set -gx {name} {_fish_word(value)}" for name, value in variables.values.items()]
    lines += [f"set -e {name}" for name in variables.absent]
    # `set -e` fails for unset variables.
    return ";\n".join([*lines, "false" if variables.is_failure else "true"]) + "\n"


def _fish_word(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _as_json(variables: ClientVariables) -> str:
    return json.dumps(dict(variables.values), indent=2) + "\n"


def _as_dotenv(variables: ClientVariables) -> str:
    return "".join(
        f"{name}={value if _is_plain(value) else json.dumps(value, ensure_ascii=False)}\n"
        for name, value in variables.values.items()
    )


def _is_plain(value: str) -> bool:
    return shlex.quote(value) == value


_RENDER: dict[Format, Callable[[ClientVariables], str]] = {
    Format.SH: _as_sh,
    Format.FISH: _as_fish,
    Format.JSON: _as_json,
    Format.DOTENV: _as_dotenv,
}


@dataclass(frozen=True)
class _ClientFiles:
    """Files for clients that ignore variables."""

    data: Path
    """for AWS_DATA_PATH"""
    configuration: Path
    """of the SageMaker SDK"""


def _write_files(home: Home, url: str, settings: Settings) -> _ClientFiles:
    files = _ClientFiles(
        data=home.clients / "botocore", configuration=home.clients / "sagemaker.yaml"
    )
    try:
        for service, version in _FIXED.items():
            path = files.data / service / version / "endpoint-rule-set-1.json"
            _replace(path, json.dumps(_rules(url)))
        _replace(files.configuration, _sdk_configuration(settings))
    except OSError as error:
        raise HomeError(
            f"What clients need to know cannot be written to {home.clients}: {error.strerror}."
        ) from error
    return files


def _replace(path: Path, content: str) -> None:
    """Writes atomically: another shell's client may be reading."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(content)
    draft.replace(path)


def _rules(url: str) -> dict[str, Any]:
    """Rules that make botocore always use this address."""
    return {
        "version": "1.0",
        "parameters": {
            "Region": {"builtIn": "AWS::Region", "required": False, "type": "String"},
            "Endpoint": {"builtIn": "SDK::Endpoint", "required": False, "type": "String"},
        },
        "rules": [
            {
                "conditions": [],
                "endpoint": {"url": url, "properties": {}, "headers": {}},
                "type": "endpoint",
            }
        ],
    }


def _sdk_configuration(settings: Settings) -> str:
    """Returns JSON, which is valid YAML."""
    account, region = settings.account_id, settings.region
    role = f"arn:aws:iam::{account}:role/{_ROLE}"
    session = {"DefaultS3Bucket": f"sagemaker-{region}-{account}"}
    content = {
        "SchemaVersion": "1.0",
        "SageMaker": {
            "PythonSDK": {"Modules": {"TelemetryOptOut": True, "Session": session}},
            "Model": {"ExecutionRoleArn": role},
            "TrainingJob": {"RoleArn": role},
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _tell_of_configurations(ours: Path, choices: ClientChoices) -> None:
    if choices.sdk_configuration not in (None, str(ours)):
        _note(
            f"SAGEMAKER_USER_CONFIG_OVERRIDE stays {choices.sdk_configuration}; "
            f"Sagehen's own defaults of the SageMaker SDK are in {ours}."
        )
    elif choices.hidden_configuration is not None:
        _note(
            f"The SageMaker SDK reads {ours} in this shell, and not "
            f"{choices.hidden_configuration}. To have it read another one, set "
            "SAGEMAKER_USER_CONFIG_OVERRIDE before."
        )


def _format_of(args: list[str]) -> Format:
    words = [word for arg in args for word in arg.split("=")]
    asked = [after for word, after in pairwise(words) if word == "--format"]
    return Format(asked[-1]) if asked and asked[-1] in list(Format) else Format.SH


def _write(variables: ClientVariables, format: Format) -> None:
    sys.stdout.write(render(variables, format))
    sys.stdout.flush()


def _note(text: str) -> None:
    err.print(text, markup=False)
