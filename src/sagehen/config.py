"""Every setting, in one table; the only reader of the environment.

A setting comes from, strongest first: the command line, `SAGEHEN_<NAME>`, `sagehen.toml` in the
home, the default. Units are in the name.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from sagehen.errors import SettingError
from sagehen.inference_settings import InferenceServiceSettings

__all__ = ["Settings", "client_variables", "load_settings", "pip_variables"]

PREFIX = "SAGEHEN_"
_NESTED = "__"
"""Between a section and a key of it, in a variable's name."""
_PIP_FILES = ("~/.config/pip/pip.conf", "~/.pip/pip.conf")
_PIP_FROM = {
    "PIP_PROXY": ("https_proxy", "HTTPS_PROXY"),
    "PIP_CERT": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}


class Settings(BaseModel):
    """One frozen object, built once per process and handed down."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path = Field(
        Path("~/.sagehen"), description="Where everything is kept. Not in a file of settings."
    )
    config: Path | None = Field(
        None,
        description="The file of settings; default: sagehen.toml in the home. Not in such a file.",
    )
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(9000, ge=0, le=65535, description="The one port for every service.")
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^/?#\s]+/?$",
        description="Where others reach this server: for links in notifications and the URLs of "
        "queues; default: its address and port.",
    )
    gateways: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Gateway processes on the port; default: one per two cores, at least one.",
    )
    account_id: str = Field(
        "000000000000", pattern=r"^[0-9]{12}$", description="The AWS account id."
    )
    region: str = Field("us-east-1", pattern=r"^[a-z0-9-]+$", description="The AWS region.")
    log_level: str = Field(
        "INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$", description="The least that is logged."
    )
    database_url: str | None = Field(
        None, description="SQLAlchemy URL of the state; default: SQLite in the home."
    )
    object_store_url: str | None = Field(
        None,
        description="An S3 to keep objects in, as s3://bucket/prefix (credentials from "
        "object_store_options); default: files in the home.",
    )
    object_store_options: dict[str, str] = Field(
        default_factory=dict, description="Options handed to obstore as they are."
    )
    images: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Image name or pattern to a command of one's own.",
    )
    strict_capacity: bool = Field(
        False, description="Refuse endpoints that ask for more than this machine has."
    )
    max_endpoint_instances: int = Field(
        100, gt=0, description="Instances of all endpoints together; more are refused."
    )
    topics_required: bool = Field(
        True,
        description="Fail an asynchronous endpoint whose topic does not exist; else it is a line "
        "in the log.",
    )
    model_memory_share: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Share of an instance type's memory that a multi-model container may fill.",
    )
    instance_limits: bool = Field(
        True,
        description="Hold instances to the memory and vCPUs of their type, where this machine has "
        "as much, and to max_instance_processes.",
    )
    instance_memory_bytes: int | None = Field(
        None,
        ge=2**20,
        description="Memory of an instance; default: its type's. Never more than the machine's.",
    )
    max_instance_processes: int = Field(
        4096, gt=0, description="Processes and threads that an instance may have."
    )
    cgroups: bool = Field(
        True,
        description="Put containers into cgroups (version 2) where this server may make some.",
    )
    mount_opt_ml: bool = Field(
        True,
        description="Have containers see their folder at /opt/ml, where the kernel lets this "
        "server: in a namespace of mounts of their own, and of users too if it is not root.",
    )
    model_load_timeout_seconds: float = Field(
        360,
        gt=0,
        description="How long a model of a multi-model endpoint may take to be fetched and loaded; "
        "its callers wait as long as for an invocation.",
    )
    artifact_cache_bytes: int = Field(
        20 * 2**30, ge=0, description="Disk for unpacked artifacts that nothing uses now."
    )
    environment_cache_bytes: int = Field(
        10 * 2**30,
        gt=0,
        description="Disk for packages that a requirements.txt named and that nothing uses now.",
    )
    max_artifact_bytes: int = Field(
        100 * 2**30, gt=0, description="The most an archive may unpack to."
    )
    max_invocation_body_bytes: int = Field(
        25 * 2**20, gt=0, description="Largest InvokeEndpoint body."
    )
    max_pipeline_body_bytes: int = Field(
        5 * 2**20,
        gt=0,
        description="Largest answer of a pipeline's container that is passed to the next.",
    )
    invocation_timeout_seconds: float = Field(
        60, gt=0, description="How long a container may take to answer."
    )
    response_stream_timeout_seconds: float = Field(
        480,
        gt=0,
        description="How long a streamed answer may go on after its first byte.",
    )
    max_queued_invocations: int = Field(
        10_000,
        gt=0,
        description="Requests one gateway holds at once, waiting ones too; more get 503.",
    )
    max_held_body_bytes: int = Field(
        2**30,
        gt=0,
        description="Bodies one gateway holds at once, of all requests together; more get 503.",
    )
    max_shadow_copies: int = Field(
        1000,
        gt=0,
        description="Copies that one gateway holds for one shadow variant; more are dropped.",
    )
    max_shadow_body_bytes: int = Field(
        2**28, gt=0, description="Bodies of those copies together; what is more is dropped."
    )
    max_connections: int = Field(
        16_384,
        gt=0,
        description="Clients connected to one gateway at once, a quarter of the files that it may "
        "open at most; more get 503.",
    )
    max_head_bytes: int = Field(
        64 * 1024,
        ge=4096,
        description="Largest head of a request: its line and header fields; larger gets 431.",
    )
    head_timeout_seconds: float = Field(
        20, gt=0, description="How long a request's head may take to come; then it gets 408."
    )
    stall_timeout_seconds: float = Field(
        120,
        gt=0,
        description="How long a client may send nothing of a body it has begun, or take nothing "
        "of its answer, before it is cut off.",
    )
    idle_timeout_seconds: float = Field(
        300, gt=0, description="How long a connection is kept between requests."
    )
    smtp_host: str | None = Field(
        None, description="The mail server for notifications by e-mail; without it there are none."
    )
    smtp_port: int = Field(25, ge=1, le=65535, description="The mail server's port.")
    smtp_security: str = Field(
        "none",
        pattern=r"^(none|starttls|tls)$",
        description="How the connection to the mail server is encrypted: none, starttls or tls.",
    )
    smtp_username: str | None = Field(None, description="Who logs in to the mail server.")
    smtp_password: SecretStr | None = Field(None, description="With which password.")
    mail_sender: str = Field(
        "sagehen@localhost", description="Whom notifications by e-mail are from."
    )
    delivery_timeout_seconds: float = Field(
        15, gt=0, description="How long a subscriber may take to accept a notification."
    )
    max_deliveries: int = Field(
        1024, gt=0, description="Notifications that are delivered at once; more wait."
    )
    max_receiver_deliveries: int = Field(
        8,
        gt=0,
        description="Notifications that are delivered to one receiver (a host and port) at once.",
    )
    max_waiting_deliveries: int = Field(
        1_000_000,
        gt=0,
        description="Notifications that wait for one subscriber; of more, those that would be "
        "tried last are given up.",
    )
    max_topics: int = Field(10_000, gt=0, description="Topics; more are refused.")
    max_topic_subscriptions: int = Field(
        1000, gt=0, description="Subscriptions of one topic; more are refused."
    )
    max_queues: int = Field(10_000, gt=0, description="SQS queues; more are refused.")
    max_long_polls: int = Field(
        1000, gt=0, description="ReceiveMessage calls that wait at once; more are throttled."
    )
    async_concurrency: int = Field(
        4,
        ge=1,
        le=1000,
        description="Asynchronous requests that an instance works on at once where the endpoint "
        "config has no MaxConcurrentInvocationsPerInstance; fewer where its container takes fewer.",
    )
    max_async_in_flight: int = Field(
        512,
        gt=0,
        description="Asynchronous requests of all endpoints that are worked on at once; more wait "
        "in the queue.",
    )
    max_async_input_bytes: int = Field(
        2**30, gt=0, description="Largest input of an asynchronous request."
    )
    max_async_response_bytes: int = Field(
        2**30, gt=0, description="Largest answer to an asynchronous request."
    )
    max_async_redeliveries: int = Field(
        2,
        ge=0,
        description="How often an asynchronous request is sent again after its instance was lost.",
    )
    async_store_patience_seconds: float = Field(
        300,
        gt=0,
        description="How long the input of an asynchronous request, or the place of its output, "
        "may be unreachable before it fails.",
    )
    async_history_seconds: float = Field(
        7 * 24 * 3600,
        gt=0,
        description="How long asynchronous requests can be asked after, and redriven, once they "
        "have ended.",
    )
    metric_retention_seconds: int = Field(
        15 * 86_400, ge=3600, description="How long samples of metrics are kept, by the minute."
    )
    max_metric_series: int = Field(
        10_000,
        gt=0,
        description="Series of metrics, each a metric with its dimensions and unit; what would "
        "make more is refused, or dropped where nobody is there to tell.",
    )
    max_metric_samples: int = Field(
        5_000_000,
        gt=0,
        description="Samples of all metrics together; beyond it they are kept for a shorter time.",
    )
    access_log: bool = Field(
        False, description="A line in the gateway's log at the end of each invocation."
    )
    container_log_bytes: int = Field(
        10 * 2**20, gt=0, description="Size at which a container's log is rotated (one old kept)."
    )
    max_job_logs: int = Field(
        1000,
        gt=0,
        description="Training jobs whose logs are kept; of more, those that were written last.",
    )
    job_patience_seconds: float = Field(
        3600,
        gt=0,
        description="How long the object store may be away for a training job's inputs and "
        "outputs before its attempt is lost.",
    )
    max_event_rules: int = Field(
        300,
        gt=0,
        description="Rules of EventBridge; more are refused. Each event is held "
        "against all of them.",
    )
    max_running_jobs: int | None = Field(
        None,
        ge=1,
        description="Training jobs that run at once; more wait, the oldest first. Default: one "
        "per core, at least two.",
    )
    max_waiting_jobs: int = Field(
        10_000, ge=1, description="Training jobs that wait for room; more are refused."
    )
    max_job_instances: int = Field(
        20, ge=1, description="Instances of one training job; more are refused."
    )
    max_job_restarts: int = Field(
        3,
        ge=0,
        description="How often a training job is begun again after its agent was lost; as its "
        "RetryStrategy says where it has one, and as often as needed if it is a spot job.",
    )
    inference_service: InferenceServiceSettings = Field(
        InferenceServiceSettings.model_validate({}),
        description="The [Async-Inference-Service](../howto/long-jobs.md). White lists and other "
        "lists of texts may be one text with commas.",
    )

    @property
    def gateway_count(self) -> int:
        """Gateway processes, at least one."""
        return self.gateways or max(1, len(os.sched_getaffinity(0)) // 2)

    @property
    def running_jobs(self) -> int:
        """Training jobs that run at once."""
        return self.max_running_jobs or max(2, len(os.sched_getaffinity(0)))

    @property
    def state_url(self) -> str:
        """The SQLAlchemy URL in force."""
        # Quoted: the URL would end at a `?` of the path.
        return self.database_url or f"sqlite:///{quote(str(self.home / 'state.db'))}"

    @property
    def pip_variables(self) -> dict[str, str]:
        """The user's settings of pip, for containers, which have none of the user's variables and
        another home."""
        return pip_variables(os.environ)


def client_variables() -> tuple[str, str] | None:
    """The server's URL and region that clients are pointed at; None where they are not."""
    url = os.environ.get("AWS_ENDPOINT_URL")
    regions = (os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return (url, next(filter(None, regions), "us-east-1")) if url else None


def pip_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What says how pip is to work, all of it as pip's own variables."""
    found = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    for own, others in _PIP_FROM.items():
        given = [environ[name] for name in others if environ.get(name)]
        if given:
            found.setdefault(own, given[0])
    files = [Path(name).expanduser() for name in _PIP_FILES]
    for file in files:
        if file.is_file():
            found.setdefault("PIP_CONFIG_FILE", str(file))
    return found


def load_settings(config: Path | None = None, **flags: Any) -> Settings:
    """The settings in force: `flags` that are not None win over the environment and the file.

    Raises:
        SettingError: a key is unknown, or a value is not what its setting takes.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    home = Path(given.get("home") or os.environ.get(PREFIX + "HOME") or "~/.sagehen")
    given["home"] = home.expanduser().absolute()
    file = given["home"] / "sagehen.toml"
    if chosen := config or os.environ.get(PREFIX + "CONFIG"):
        file = given["config"] = Path(chosen).expanduser().absolute()
        if not file.is_file():
            raise SettingError(f"There is no configuration file {file}.")
    _refuse_unknown_variables()
    read = _merged(_read_file(file), dict(_read_variables(Settings.model_fields, PREFIX)))
    try:
        return Settings(**{**read, **given})
    except ValidationError as error:
        raise SettingError(_say(error, file)) from error


def _read_file(file: Path) -> dict[str, Any]:
    """What the file of settings says, if there is one."""
    try:
        found = tomllib.loads(file.read_bytes().decode()) if file.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"The settings in {file} are malformed: {error}") from error
    except OSError as error:
        raise SettingError(f"The settings in {file} cannot be read: {error.strerror}.") from error
    for name in ("home", "config"):
        if name in found:
            # It says where the file itself lies, and is known before the file is read.
            raise SettingError(
                f"{name} cannot stand in a file of settings: give --{name} or "
                f"{PREFIX}{name.upper()}."
            )
    return found


def _read_variables(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[tuple[str, Any]]:
    """What the environment says of `fields`; variables that are empty say nothing."""
    for name, field in fields.items():
        variable = prefix + name.upper()
        text = os.environ.get(variable)
        section = _section(field)
        if section is not None or get_origin(field.annotation) in (dict, list):
            found = _read_json(variable, text) if text else {}
            if section is not None:
                own = dict(_read_variables(section.model_fields, variable + _NESTED))
                found = _merged(found, own) if own else found
            if found:
                yield name, found
        elif text:
            yield name, text


def _read_json(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingError(f"{variable} is malformed: {error}") from error


def _merged(under: Any, over: Any) -> Any:
    """Both tables as one; of what stands in both, `over`'s."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    both = {name: _merged(under[name], over[name]) for name in under.keys() & over.keys()}
    return {**under, **over, **both}


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """The table that a setting is, if it is one."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _refuse_unknown_variables() -> None:
    known = {PREFIX + name.upper() for name in _names()}
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            raise SettingError(f"{name} is not a setting; see docs/reference/settings.md.")


def _names() -> Iterator[str]:
    """Of all settings, those of a section behind its own."""
    for name, field in Settings.model_fields.items():
        yield name
        if (section := _section(field)) is not None:
            yield from (f"{name}{_NESTED}{key}" for key in section.model_fields)


def _say(error: ValidationError, file: Path) -> str:
    lines = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"]) or "settings"
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            lines.append(f"{name} is not a setting (in {file}).")
        elif isinstance(fault["input"], dict):
            lines.append(f"{name}: {message}.")
        else:
            lines.append(f"{name}: {message}, but it is {fault['input']!r}.")
    return "\n".join(lines)
