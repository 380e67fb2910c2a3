"""The calls to variants that start instances, as the reconciler's passes use them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.context import Record
from sagehen.frame.instance_types import is_serverless
from sagehen.services.sagemaker.hosting.demand import CallDemand, VariantUse
from sagehen.services.sagemaker.hosting.reconciler.on_demand import Room
from sagehen.services.sagemaker.hosting.reconciler.plan import EndpointStep, Reports
from sagehen.services.sagemaker.hosting.reconciler.rows import starts_on_demand
from sagehen.services.sagemaker.hosting.records import EndpointRecord, InstanceRecord

__all__ = ["OnDemand"]


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """The inputs of decisions to start and stop instances on demand.

    Args:
        record: counts values of metrics.
    """

    demand: CallDemand
    idle_seconds: float
    max_instances: int
    free_memory: Callable[[], int]
    record: Record = lambda name, dimensions, value: None

    def room(self, instances: int) -> Room:
        """Args:
        instances: the number of all endpoints' instances.
        """
        return Room(
            idle_seconds=self.idle_seconds,
            free_instances=self.max_instances - instances,
            free_memory_bytes=self.free_memory(),
        )

    def uses(
        self, endpoint: EndpointRecord | None, backlogs: Mapping[str, int]
    ) -> Mapping[str, VariantUse]:
        """Args:
        backlogs: unfinished requests of asynchronous endpoints that scale from zero.
        """
        if endpoint is None or endpoint.current is None or not starts_on_demand(endpoint):
            return {}
        variants = [variant.name for variant in endpoint.current.all_variants]
        uses = self.demand.of_endpoint(endpoint.name, variants)
        backlog = backlogs.get(endpoint.name, 0)
        return uses if not backlog else dict.fromkeys(variants, self.demand.queued(backlog))

    def follow(self, endpoints: Iterable[EndpointRecord]) -> None:
        self.demand.follow(
            {
                (endpoint.name, variant.name): variant.serverless
                for endpoint in endpoints
                if endpoint.current is not None
                for variant in endpoint.current.all_variants
                if variant.starts_on_demand
            }
        )

    def note_starts(
        self, before: Iterable[InstanceRecord], step: EndpointStep, reports: Reports | None
    ) -> None:
        """Counts the starts of serverless instances, once each."""
        served = {each.instance_id for each in before if each.state is InstanceState.IN_SERVICE}
        for instance in step.changed:
            report = (reports or {}).get(instance.instance_id)
            if (
                report is not None
                and report.state is InstanceState.IN_SERVICE
                and instance.instance_id not in served
                and is_serverless(instance.spec.instance_type)
            ):
                dimensions = {
                    "EndpointName": instance.endpoint_name,
                    "VariantName": instance.variant_name,
                }
                self.record("ModelSetupTime", dimensions, report.setup_seconds * 1e6)
