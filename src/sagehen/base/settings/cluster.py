"""The settings of servers on several machines."""

from pydantic import Field

from sagehen.base.settings.section import Section

__all__ = ["ClusterSettings"]


class ClusterSettings(Section):
    """More than one machine."""

    cluster_cut_off_seconds: float = Field(
        600,
        ge=30,
        description="How long the instances of endpoints on a node serve without any control; then "
        "they stop. Jobs stop after 8 seconds.",
    )
