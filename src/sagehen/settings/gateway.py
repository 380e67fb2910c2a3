"""What the gateway holds at once, and for how long."""

from pydantic import Field

from sagehen.settings.section import Section

__all__ = ["ConnectionSettings", "InvocationSettings"]


class InvocationSettings(Section):
    """Invocations."""

    invocation_timeout_seconds: float = Field(
        60, gt=0, description="How long a container may take to answer."
    )
    response_stream_timeout_seconds: float = Field(
        480,
        gt=0,
        description="How long a streamed answer may go on after its first byte.",
    )
    max_invocation_body_bytes: int = Field(
        25 * 2**20, gt=0, description="Largest InvokeEndpoint body."
    )
    max_pipeline_body_bytes: int = Field(
        5 * 2**20,
        gt=0,
        description="Largest answer of a pipeline's container that is passed to the next.",
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
    max_held_control_body_bytes: int = Field(
        2**28,
        gt=0,
        description="Bodies that the process behind the gateways holds at once, of all requests "
        "that are not invocations or S3's; more get 503.",
    )
    max_shadow_copies: int = Field(
        1000,
        gt=0,
        description="Copies that one gateway holds for one shadow variant; more are dropped.",
    )
    max_shadow_body_bytes: int = Field(
        2**28, gt=0, description="Bodies of those copies together; what is more is dropped."
    )
    access_log: bool = Field(
        False, description="A line in the gateway's log at the end of each invocation."
    )


class ConnectionSettings(Section):
    """Clients' connections."""

    max_connections: int = Field(
        16_384,
        gt=0,
        description="Clients connected to one gateway at once, and fewer where it may open few "
        "files, as each may take four. For one more, the connection that has been idle the longest "
        "is closed; where none is idle it gets 503.",
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
