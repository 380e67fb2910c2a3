"""Where instances are reached: what the agent says of them, or said last."""

from collections.abc import Iterable

from msgspec.structs import replace

from sagehen.domain.containers import InstanceReport, InstanceState
from sagehen.domain.records import InstanceRecord
from sagehen.domain.routes import DEFAULT_SLOTS, ContainerAddress, InstanceRoute
from sagehen.reconcile.plan import Reports

__all__ = ["Places"]


class Places:
    """
    Args:
        reports: what the agent says now; where it is None, the records' last word counts.
        before: the instances of the table in force.
    """

    def __init__(self, reports: Reports | None, before: Iterable[InstanceRoute]) -> None:
        self._reports = reports
        self._before = {one.instance_id: one for one in before}

    def find(self, instance: InstanceRecord) -> InstanceRoute | None:
        """Without columns of the board; None where it does not serve."""
        if self._reports is None:
            return self._as_before(instance)
        report = self._reports.get(instance.instance_id)
        if report is None or report.state is not InstanceState.IN_SERVICE:
            return None
        several = len(instance.spec.containers) > 1
        if several and len(report.containers) != len(instance.spec.containers):
            return None
        return _as_reported(report)

    def _as_before(self, instance: InstanceRecord) -> InstanceRoute | None:
        """The address is the record's; what the agent said besides stays while it is away."""
        address = instance.address
        if instance.state is not InstanceState.IN_SERVICE or address is None:
            return None
        before = self._before.get(instance.instance_id)
        if before is None or before.address != address:
            if len(instance.spec.containers) > 1:
                return None  # A record does not say where the other containers are.
            before = before or InstanceRoute(instance_id=instance.instance_id, address=address)
        return replace(before, address=address)


def _as_reported(report: InstanceReport) -> InstanceRoute | None:
    if report.address is None:
        return None
    containers = tuple(
        ContainerAddress(one.address, one.slots or DEFAULT_SLOTS) for one in report.containers
    )
    # What goes through all of them can be no more at once than the slowest of them takes.
    slots = min((one.slots for one in containers), default=report.slots or DEFAULT_SLOTS)
    return InstanceRoute(
        instance_id=report.instance_id,
        address=report.address,
        slots=slots,
        run_id=report.run_id,
        containers=containers,
    )
