"""The settings of the docker launcher."""

from pydantic import Field

from sagehen.base.settings.section import Section

__all__ = ["DockerSettings"]


class DockerSettings(Section):
    """The docker launcher."""

    docker_host: str | None = Field(
        None,
        pattern=r"^unix://.+",
        description="The Docker Engine on this machine, as `unix:///path/of/its.sock`; default: "
        "`DOCKER_HOST`, else `unix:///var/run/docker.sock`.",
    )
    docker_registries: dict[str, str] = Field(
        default_factory=dict,
        description="Where images are found instead: the beginning of an image URI (a registry, "
        "or a registry and a path; the registry may be a pattern such as "
        "`*.dkr.ecr.*.amazonaws.com`) and what replaces it, such as `registry.local:5000`. An "
        "empty text stands for images without a registry.",
    )
    docker_pull_timeout_seconds: float = Field(
        3600, gt=0, description="How long an image may take to be pulled."
    )
