"""The settings of an Async-Inference-Service: the section `[inference_service]` of sagehen.toml,
and the body of `PUT /_sagehen/inference-services/{stage}`."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sagehen.base.settings.section import Items, Section, items_of

__all__ = ["InferenceServiceSettings", "TypeSettings", "filled"]

_MAX_RUNTIME_SECONDS = 28 * 24 * 3600
"""seconds; SageMaker's limit for a training job"""

_ADDRESS = re.compile(r"[^@\s,;:<>()\[\]\\\"]{1,64}@[^@\s,;:<>()\[\]\\\"]{1,255}")
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_REPOSITORY = re.compile(r"[A-Za-z0-9._/-]{1,255}")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


def _addresses(value: Any) -> Any:
    addresses = items_of(value)
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            detail = f" ({address!r} is not one)" if len(addresses) > 1 else ""
            raise ValueError(f"Input should be addresses such as me@example.com{detail}")
    return addresses


class TypeSettings(Section):
    """Settings of one type."""

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The image of the type; default: the setting image.",
    )
    hyperparameters: dict[str, str] = Field(
        default_factory=dict,
        max_length=100,
        description="Hyperparameters of all its jobs, which a request cannot change.",
    )


class InferenceServiceSettings(Section):
    """An Async-Inference-Service, which is on while `s3_bucket` is set."""

    s3_bucket: str | None = Field(
        None,
        pattern=rf"^{_BUCKET}$",
        description="The bucket of inputs, checkpoints and results, created if it is missing. The "
        "service is on while this is set.",
    )
    white_list: Items = Field(
        (),
        max_length=1000,
        description="The types that requests may name: one text with commas, or a list. Each is "
        "the name of an image repository.",
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
        True, description="Requests need a key of `sagehen api-key` in x-api-key."
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
        "refuse", description="What happens to a request beyond the limit."
    )
    max_queued: int = Field(
        100, ge=1, le=10_000, description="Requests that wait at once; more are refused."
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
        description="Settings of a type, by its name: `image`, `hyperparameters`.",
    )
    instance_type: str = Field(
        "ml.g4dn.xlarge",
        pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$",
        description="The instance type of a job whose request names none.",
    )
    allowed_instance_types: Items = Field(
        (), max_length=500, description="Further instance types that a request may name."
    )
    instance_count: int = Field(
        1, ge=1, le=100, description="The instances of a job whose request names no number."
    )
    max_instance_count: int = Field(
        1, ge=1, le=100, description="The most instances that a request may name."
    )
    volume_gb: int = Field(
        30, ge=1, le=16_384, description="Disk for the files of a job's instance."
    )
    max_runtime_seconds: int = Field(
        24 * 3600,
        ge=1,
        le=_MAX_RUNTIME_SECONDS,
        description="How long a job may run before it is stopped.",
    )
    spot: bool = Field(
        False,
        description="Jobs are spot jobs, which may be interrupted and continue from their "
        "checkpoints, unless the request says otherwise.",
    )
    max_wait_seconds: int | None = Field(
        None,
        ge=1,
        description="How long a spot job may take, waiting included; default: twice "
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
        description="Data that every job gets as its channel training-data; default: none.",
    )
    allowed_inputs: Items = Field(
        (),
        max_length=100,
        description="Prefixes that the `input` of a request may have, such as "
        "`s3://bucket/folder/`; default: the service's own bucket.",
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
        description="Largest request, including an input in its body.",
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
        description="How long an ended job can be shown.",
    )
    topic: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]{1,256}$",
        description="The topic of the notices, created if it is missing; default: "
        "`inference-<stage>`.",
    )
    notify: Annotated[
        tuple[Literal["Completed", "Failed", "Stopped"], ...], BeforeValidator(items_of)
    ] = Field(
        ("Completed", "Failed", "Stopped"),
        description="The outcomes of jobs that cause a notice.",
    )
    emails: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = Field(
        (), max_length=100, description="E-mail addresses that are subscribed to the topic."
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
                names = ", ".join(sorted(self.model_fields_set))
                raise ValueError(f"{names} given without s3_bucket, which turns the service on")
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
        """Checks that each type without an image of its own can be part of an image's name."""
        if "{type}" not in self.image:
            return
        for name in self.white_list:
            settings = self.types.get(name)
            if (settings is None or settings.image is None) and not _REPOSITORY.fullmatch(name):
                raise ValueError(
                    f"white_list has {name!r}, which cannot be part of an image's name: a "
                    "repository has ASCII letters, digits and . _ - / only. Rename the type, or "
                    "give it an image in types"
                )

    def _check_placeholders(self) -> None:
        allowed_by_name = {
            "image": {"type", "account_id", "region"},
            "text_accepted": {"jobName", "remaining", "limit", "type"},
            "text_malformed": set(),
            "text_limit": {"limit", "type"},
            "text_unsupported": {"type"},
        }
        for name, allowed in allowed_by_name.items():
            for placeholder in _PLACEHOLDER.findall(getattr(self, name)):
                if placeholder not in allowed:
                    names = ", ".join(f"{{{key}}}" for key in sorted(allowed)) or "none"
                    raise ValueError(
                        f"{name} has {{{placeholder}}}, which is unknown; it may have {names}"
                    )

    @property
    def is_on(self) -> bool:
        return self.s3_bucket is not None

    @property
    def result_root(self) -> str:
        """The folder in which each job has a folder; without a slash at its end."""
        return (self.output_uri or f"s3://{self.s3_bucket}/output").rstrip("/")

    @property
    def wait_seconds(self) -> int:
        return self.max_wait_seconds or 2 * self.max_runtime_seconds


def filled(template: str, **values: object) -> str:
    """Replaces each `{name}` of `values`, once: a value may contain braces itself."""

    def value(match: re.Match[str]) -> str:
        return str(values.get(match[1], match[0]))

    return _PLACEHOLDER.sub(value, template)
