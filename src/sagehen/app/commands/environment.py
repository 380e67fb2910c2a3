"""`sagehen env`: points AWS clients at a server.

After a failure it points them nowhere: `eval "$(sagehen env)"` loses the exit status, and an
unchanged shell would create endpoints at AWS, for money.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from sagehen.base.credentials import ACCESS_KEY_PREFIX, Credentials, load_credentials
from sagehen.base.errors import HomeError
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.base.terminal import ConfigOption, HomeOption, err, plain_errors
from sagehen.base.user_environment import ClientChoices, client_choices

__all__ = ["ClientVariables", "EnvCommand", "Format", "env", "render"]

UNREACHABLE_URL = "http://127.0.0.1:9"
"""the discard port, where nothing listens"""
_NO_KEY = "sagehen-env-failed"
_RULE_SET_VERSIONS = {"sts": "2011-06-15", "sqs": "2012-11-05"}
"""API versions of services whose address some client sets itself, over AWS_ENDPOINT_URL: the
SageMaker SDK for STS, the AWS CLI 1 for SQS"""
_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")
_BEFORE = "BEFORE_SAGEHEN_"
"""prefix of the variables that keep what the shell had"""
_KEPT = re.compile(rf"{_BEFORE}(AWS_[A-Z0-9_]+|SAGEMAKER_USER_CONFIG_OVERRIDE)")
"""A shell evaluates these names, and gets back nothing but what was taken from it."""
_NAMES = (
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DATA_PATH",
    "SAGEMAKER_USER_CONFIG_OVERRIDE",
)
"""all that point a client at the server"""
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
    copies: Mapping[str, str] = field(default_factory=dict)
    """variables that first get another variable's value; files and programs get none"""
    is_failure: bool = field(default=False)


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="For bash and zsh (sh), fish, a program (json), or a .env file."),
]


class EnvCommand(TyperCommand):
    """Prints variables that point nowhere if its options are wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = list(args)
        is_right = False
        try:
            parsed = super().parse_args(ctx, args)
            is_right = True
        except typer.Exit as end:
            is_right = end.exit_code == 0  # after --help
            raise
        finally:
            if not is_right:
                _write(_nowhere(client_choices()), _format_of(arguments))
        return parsed


def env(
    format: FormatOption = Format.SH,
    unset: Annotated[
        bool, typer.Option("--unset", help="Give back to the shell what it had before.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the variables that point AWS clients at the server: eval "$(sagehen env)"."""
    choices = client_choices()
    if unset:
        _write(_given_back(os.environ), format)
        return
    with plain_errors(), _or_nowhere(choices, format):
        settings = load_settings(config, home=home)
        server_home = Home(settings.home)
        credentials = load_credentials(server_home.credentials)
        if server_home.address.exists():
            url = server_home.address.read_text()
            if server_home.reachable.exists() and (urls := server_home.reachable.read_text()):
                _note(f"On other machines: AWS_ENDPOINT_URL={urls.splitlines()[0]}")
        else:
            url = client_url(settings.host, settings.port)
            path = server_home.path
            _note(f"No server runs with the home {path} now; start it: sagehen up --home {path}")
        files = _write_files(server_home, url, settings)
        _write(_pointed_at(url, credentials, settings, files, choices), format)
    _explain_configurations(files.configuration, choices)


@contextmanager
def _or_nowhere(choices: ClientChoices, format: Format) -> Iterator[None]:
    has_pointed = False
    try:
        yield
        has_pointed = True
    finally:
        if not has_pointed:
            _write(_nowhere(choices), format)


def _pointed_at(
    url: str,
    credentials: Credentials,
    settings: Settings,
    files: "_ClientFiles",
    choices: ClientChoices,
) -> ClientVariables:
    other_folders = [folder for folder in choices.data_path if folder != str(files.data)]
    values = {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_DATA_PATH": os.pathsep.join([str(files.data), *other_folders]),
    }
    if choices.sdk_configuration in (None, str(files.configuration)):
        values["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(files.configuration)
    absent = _absent(choices)
    return ClientVariables(values, absent, _kept_back((*_NAMES, *absent), os.environ))


def _kept_back(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Copies what the shell has, once, by the names of the variables: the values, which may be
    keys of a real account, are not printed."""
    if any(map(_KEPT.fullmatch, environ)) or _is_pointed(environ):
        return {}
    return {_BEFORE + name: name for name in names if name in environ}


def _is_pointed(environ: Mapping[str, str]) -> bool:
    """Returns whether the shell has the keys of a server, and so no values to keep."""
    return environ.get("AWS_ACCESS_KEY_ID", "").startswith((ACCESS_KEY_PREFIX, _NO_KEY))


def _given_back(environ: Mapping[str, str]) -> ClientVariables:
    kept = sorted(filter(_KEPT.fullmatch, environ))
    if not kept and not _is_pointed(environ):
        _note("This shell does not point at a server: nothing to unset.")
        return ClientVariables({})
    copies = {name.removeprefix(_BEFORE): name for name in kept}
    return ClientVariables({}, (*(name for name in _NAMES if name not in copies), *kept), copies)


def _nowhere(choices: ClientChoices) -> ClientVariables:
    # Also set keys: a client too old for AWS_ENDPOINT_URL would use the user's own at AWS.
    values = {
        "AWS_ENDPOINT_URL": UNREACHABLE_URL,
        "AWS_ACCESS_KEY_ID": _NO_KEY,
        "AWS_SECRET_ACCESS_KEY": _NO_KEY,
    }
    absent = _absent(choices)
    kept = _kept_back((*_NAMES, *absent), os.environ)
    return ClientVariables(values, absent, kept, is_failure=True)


def _absent(choices: ClientChoices) -> tuple[str, ...]:
    # A real account's token or profile, or one service's endpoint, would take precedence.
    return ("AWS_SESSION_TOKEN", "AWS_PROFILE", *choices.stronger)


def render(variables: ClientVariables, format: Format) -> str:
    return _RENDER[format](variables)


def _as_sh(variables: ClientVariables) -> str:
    statements = [f'export {name}="${source}"' for name, source in variables.copies.items()]
    statements += [
        f"export {name}={shlex.quote(value)}" for name, value in variables.values.items()
    ]
    if variables.absent:
        statements.append("unset " + " ".join(variables.absent))
    return "\n".join([*statements, *(["false"] if variables.is_failure else [])]) + "\n"


def _as_fish(variables: ClientVariables) -> str:
    statements = [f'set -gx {name} "${source}"' for name, source in variables.copies.items()]
    statements += [
        f"set -gx {name} {_fish_word(value)}" for name, value in variables.values.items()
    ]
    statements += [f"set -e {name}" for name in variables.absent]
    # `set -e` fails for unset variables.
    return ";\n".join([*statements, "false" if variables.is_failure else "true"]) + "\n"


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
        for service, version in _RULE_SET_VERSIONS.items():
            path = files.data / service / version / "endpoint-rule-set-1.json"
            _replace(path, json.dumps(_rules(url)))
        _replace(files.configuration, _sdk_configuration(settings))
    except OSError as error:
        raise HomeError(
            f"The files for AWS clients cannot be written to {home.clients}: {error.strerror}."
        ) from error
    return files


def _replace(path: Path, content: str) -> None:
    """Writes atomically: another shell's client may be reading."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(content)
    draft.replace(path)


def _rules(url: str) -> dict[str, Any]:
    """Rules that make botocore use `url` in place of its own address and of any address in AWS.

    The SageMaker SDK and the AWS CLI 1 name addresses in AWS explicitly. Any other address that a
    client is given, such as that of a second server, holds.
    """
    given: dict[str, Any] = {"fn": "isSet", "argv": [{"ref": "Endpoint"}]}
    return {
        "version": "1.0",
        "parameters": {
            "Region": {"builtIn": "AWS::Region", "required": False, "type": "String"},
            "Endpoint": {"builtIn": "SDK::Endpoint", "required": False, "type": "String"},
        },
        "rules": [
            *(_rule([given, *_host_ends_with(domain)], url) for domain in _AWS_DOMAINS),
            _rule([given], {"ref": "Endpoint"}),
            _rule([], url),
        ],
    }


def _rule(conditions: list[dict[str, Any]], url: str | dict[str, Any]) -> dict[str, Any]:
    endpoint = {"url": url, "properties": {}, "headers": {}}
    return {"conditions": conditions, "endpoint": endpoint, "type": "endpoint"}


def _host_ends_with(domain: str) -> list[dict[str, Any]]:
    parts = {"fn": "parseURL", "argv": [{"ref": "Endpoint"}], "assign": "parts"}
    host = {"fn": "getAttr", "argv": [{"ref": "parts"}, "authority"], "assign": "host"}
    end = {"fn": "substring", "argv": [{"ref": "host"}, 0, len(domain), True], "assign": "end"}
    return [parts, host, end, {"fn": "stringEquals", "argv": [{"ref": "end"}, domain]}]


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


def _explain_configurations(own_file: Path, choices: ClientChoices) -> None:
    if choices.sdk_configuration not in (None, str(own_file)):
        _note(
            f"SAGEMAKER_USER_CONFIG_OVERRIDE stays {choices.sdk_configuration}; "
            f"Sagehen's own defaults of the SageMaker SDK are in {own_file}."
        )
    elif choices.hidden_configuration is not None:
        _note(
            f"The SageMaker SDK reads {own_file} in this shell, and not "
            f"{choices.hidden_configuration}. To have it read another one, set "
            "SAGEMAKER_USER_CONFIG_OVERRIDE before."
        )


def _format_of(args: list[str]) -> Format:
    words = [word for arg in args for word in arg.split("=")]
    formats = [after for word, after in pairwise(words) if word == "--format"]
    return Format(formats[-1]) if formats and formats[-1] in list(Format) else Format.SH


def _write(variables: ClientVariables, format: Format) -> None:
    sys.stdout.write(render(variables, format))
    sys.stdout.flush()


def _note(text: str) -> None:
    err.print(text, markup=False)
