"""The settings of endpoints whose instances start on demand."""

from pydantic import Field

from sagehen.base.settings.section import Items, Section

__all__ = ["OnDemandSettings"]


class OnDemandSettings(Section):
    """Serverless endpoints, and endpoints that scale from zero."""

    serverless_idle_seconds: float = Field(
        300,
        gt=0,
        description="How long instances that calls have started run without calls before they "
        "stop. SageMaker does not publish its own time; users have seen seconds to five minutes.",
    )
    start_wait_seconds: float = Field(
        180,
        gt=0,
        description="How long an invocation waits for the first instance to start; then it gets "
        "503. The time that its container may take to answer begins after that.",
    )
    max_waiting_for_start: int = Field(
        1000,
        gt=0,
        description="Invocations that one gateway holds for a variant while its first instance "
        "starts; more get 503.",
    )
    fork_servers: int = Field(
        3,
        ge=0,
        description="Processes that have imported a framework, from which containers of the "
        "built-in model server are forked: one for each framework and Python of endpoints that may "
        "be without instances, those used last. Each takes 30 to 400 MB; 0: none.",
    )
    script_variables: Items = Field(
        (),
        description="Variables of models that only their scripts read, so that containers with "
        "them can be forked too: one text with commas, or a list. Any other variable that is not "
        "SageMaker's, AWS's, pip's or Sagehen's may be read when Python or a library starts.",
    )
