"""The settings of an Async-Inference-Service: the section `[inference_service]` of sagehen.toml,
and what `PUT /_sagehen/inference-services/{stage}` takes."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sagehen.base.settings.section import Items, Section, items_of

__all__ = ["InferenceServiceSettings", "TypeSettings", "filled"]

_MOST_RUNTIME_SECONDS = 28 * 24 * 3600
"""SageMaker's, of a training job."""

_ADDRESS = re.compile(r"[^@\s,;:<>()\[\]\\\"]{1,64}@[^@\s,;:<>()\[\]\\\"]{1,255}")
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_REPOSITORY = re.compile(r"[A-Za-z0-9._/-]{1,255}")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


def _addresses(value: Any) -> Any:
    found = items_of(value)
    for address in found:
        if not _ADDRESS.fullmatch(address):
            which = f" ({address!r} is none)" if len(found) > 1 else ""
            raise ValueError(f"Input should be addresses such as me@example.com{which}")
    return found


class TypeSettings(Section):
    """What is special about one type."""

    image: str | None = Field(
        default=None, min_length=1, max_length=255, description="Its image; default: as image says."
    )
    hyperparameters: dict[str, str] = Field(
        default_factory=dict,
        max_length=100,
        description="Hyperparameters of each of its jobs, which a request cannot change.",
    )


class InferenceServiceSettings(Section):
    """An Async-Inference-Service. There is none while `s3_bucket` is not set."""

    s3_bucket: str | None = Field(
        None,
        pattern=rf"^{_BUCKET}$",
        description="The bucket of inputs, checkpoints and results; made where it is missing. The "
        "service is on where it is set.",
    )
    white_list: Items = Field(
        (),
        max_length=1000,
        description="The types that may be asked for: one text with commas, or a list. Each is the "
        "name of an image repository.",
    )
    limit: int = Field(
        1, ge=1, le=10_000, description="Jobs of one type at once; at least 1, as published."
    )
    total_limit: int | None = Field(
        None, ge=1, le=100_000, description="Jobs of all types together at once; default: no limit."
    )
    role_arn: str | None = Field(
        None,
        pattern=r"^arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+$",
        description="The role of the jobs; default: one of the account, named "
        "SagehenInferenceService.",
    )
    stage: str = Field(
        "dev",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
        description="The first part of the path: `POST /<stage>/inference`.",
    )
    require_api_key: bool = Field(
        True, description="Only who sends a key of `sagehen api-key` as x-api-key is heard."
    )
    profile: Literal["published", "modern"] = Field(
        "published",
        description="published: the answers as they were published, 200, 501, 502, 510; modern: "
        "202, 400, 403, 429, with more in the body.",
    )
    always_200: bool = Field(
        False,
        description="In the published profile, answer HTTP 200 whatever the status in the body is.",
    )
    when_full: Literal["refuse", "queue"] = Field(
        "refuse", description="What becomes of a request beyond the limit."
    )
    max_queued: int = Field(
        100, ge=1, le=10_000, description="Requests that wait for room at once; more are refused."
    )
    image: str = Field(
        "{account_id}.dkr.ecr.{region}.amazonaws.com/{type}:latest",
        min_length=1,
        max_length=255,
        description="The image of a type. {type}, {account_id} and {region} are filled in.",
    )
    types: dict[str, TypeSettings] = Field(
        default_factory=dict,
        max_length=1000,
        description="What is special about a type, by its name: `image`, `hyperparameters`.",
    )
    instance_type: str = Field(
        "ml.g4dn.xlarge",
        pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$",
        description="Of a job, where the request has none.",
    )
    allowed_instance_types: Items = Field(
        (), max_length=500, description="What a request may ask for besides instance_type."
    )
    instance_count: int = Field(
        1, ge=1, le=100, description="Of a job, where the request has none."
    )
    max_instance_count: int = Field(
        1, ge=1, le=100, description="The most that a request may ask for."
    )
    volume_gb: int = Field(
        30, ge=1, le=16_384, description="What the files of a job's instance may take."
    )
    max_runtime_seconds: int = Field(
        24 * 3600, ge=1, le=_MOST_RUNTIME_SECONDS, description="After which a job is stopped."
    )
    spot: bool = Field(
        False,
        description="Jobs may be interrupted and go on from their checkpoints, where the request "
        "does not say.",
    )
    max_wait_seconds: int | None = Field(
        None,
        ge=1,
        description="How long such a job may take with its waiting; default: twice "
        "max_runtime_seconds.",
    )
    checkpoints: bool = Field(
        True,
        description="Keep what jobs write to /opt/ml/checkpoints in "
        "`s3://<s3_bucket>/checkpoints/<job>/`.",
    )
    data_uri: str | None = Field(
        None,
        pattern=rf"^s3://{_BUCKET}(/.*)?$",
        max_length=1024,
        description="What every job gets as its channel training-data; default: none.",
    )
    allowed_inputs: Items = Field(
        (),
        max_length=100,
        description="What the `input` of a request may begin with, such as `s3://bucket/folder/`; "
        "default: the service's own bucket.",
    )
    output_uri: str | None = Field(
        None,
        pattern=rf"^s3://{_BUCKET}(/.*)?$",
        max_length=1024,
        description="Where results go; default: `s3://<s3_bucket>/output`.",
    )
    max_body_bytes: int = Field(
        2**20,
        ge=1024,
        le=2**28,
        description="Largest request, with the input that it may bring along.",
    )
    idempotency_seconds: float = Field(
        24 * 3600,
        gt=0,
        le=30 * 24 * 3600,
        description="How long an Idempotency-Key is remembered.",
    )
    history_seconds: float = Field(
        30 * 24 * 3600,
        gt=0,
        description="How long a job can be asked after once it has ended.",
    )
    topic: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]{1,256}$",
        description="The topic of the notices, made where it is missing; default: "
        "`inference-<stage>`.",
    )
    notify: Annotated[
        tuple[Literal["Completed", "Failed", "Stopped"], ...], BeforeValidator(items_of)
    ] = Field(
        ("Completed", "Failed", "Stopped"),
        description="The ends of jobs that are told of.",
    )
    emails: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = Field(
        (), max_length=100, description="Addresses that are subscribed to the topic."
    )
    text_accepted: str = Field(
        "A new job [{jobName}] was scheduled successfully, and {remaining} slots reminded.",
        max_length=4096,
        description="errMsg of 200; {jobName}, {remaining}, {limit} and {type} are filled in.",
    )
    text_malformed: str = Field(
        'missing "type" in your request, please check and try again.',
        max_length=4096,
        description="errMsg of 501.",
    )
    text_limit: str = Field(
        "Failed to schedule inference at the moment, due to reaching limit {limit}.",
        max_length=4096,
        description="errMsg of 502; {limit} and {type} are filled in.",
    )
    text_unsupported: str = Field(
        "The type [{type}]  of inference request is NOT supported..",
        max_length=4096,
        description="errMsg of 510; {type} is filled in.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.s3_bucket is None:
            if self.model_fields_set:
                given = ", ".join(sorted(self.model_fields_set))
                raise ValueError(f"{given} given without s3_bucket, which turns the service on")
            return self
        if self.instance_count > self.max_instance_count:
            raise ValueError("instance_count is over max_instance_count")
        if self.max_wait_seconds is not None and self.max_wait_seconds < self.max_runtime_seconds:
            raise ValueError("max_wait_seconds is under max_runtime_seconds")
        unlisted = sorted(self.types.keys() - set(self.white_list))
        if unlisted:
            raise ValueError(f"types has {', '.join(unlisted)}, not in white_list")
        self._check_images()
        self._check_placeholders()
        return self

    def _check_images(self) -> None:
        """Whether each type that has no image of its own can be a part of one's name."""
        if "{type}" not in self.image:
            return
        for name in self.white_list:
            own = self.types.get(name)
            if (own is None or own.image is None) and not _REPOSITORY.fullmatch(name):
                raise ValueError(
                    f"white_list has {name!r}, which no image can be named after: a repository has "
                    "ASCII letters, digits and . _ - / only. Name it so, or give it an image in "
                    "types"
                )

    def _check_placeholders(self) -> None:
        known = {
            "image": {"type", "account_id", "region"},
            "text_accepted": {"jobName", "remaining", "limit", "type"},
            "text_malformed": set(),
            "text_limit": {"limit", "type"},
            "text_unsupported": {"type"},
        }
        for name, takes in known.items():
            for found in _PLACEHOLDER.findall(getattr(self, name)):
                if found not in takes:
                    raise ValueError(f"{name} has {{{found}}}, which nothing is filled in for")

    @property
    def is_on(self) -> bool:
        return self.s3_bucket is not None

    @property
    def result_root(self) -> str:
        """Below which each job has a folder; without a slash at its end."""
        return (self.output_uri or f"s3://{self.s3_bucket}/output").rstrip("/")

    @property
    def wait_seconds(self) -> int:
        return self.max_wait_seconds or 2 * self.max_runtime_seconds


def filled(template: str, **values: object) -> str:
    """`template` with each `{name}` of `values` replaced, once: a value may hold braces itself."""

    def value(found: re.Match[str]) -> str:
        return str(values.get(found[1], found[0]))

    return _PLACEHOLDER.sub(value, template)
