"""What instances of endpoints run, and what they may take."""

from pydantic import Field

from sagehen.settings.section import Section

__all__ = ["ArtifactSettings", "InstanceSettings"]


class InstanceSettings(Section):
    """Instances and their containers."""

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
    container_log_bytes: int = Field(
        10 * 2**20, gt=0, description="Size at which a container's log is rotated (one old kept)."
    )


class ArtifactSettings(Section):
    """Model artifacts and packages."""

    max_artifact_bytes: int = Field(
        100 * 2**30, gt=0, description="The most an archive may unpack to."
    )
    artifact_cache_bytes: int = Field(
        20 * 2**30, ge=0, description="Disk for unpacked artifacts that nothing uses now."
    )
    environment_cache_bytes: int = Field(
        10 * 2**30,
        gt=0,
        description="Disk for packages that a requirements.txt named and that nothing uses now.",
    )
    model_memory_share: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Share of an instance type's memory that a multi-model container may fill.",
    )
    model_load_timeout_seconds: float = Field(
        360,
        gt=0,
        description="How long a model of a multi-model endpoint may take to be fetched and loaded; "
        "its callers wait as long as for an invocation.",
    )
