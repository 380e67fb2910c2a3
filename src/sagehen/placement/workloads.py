"""Reads from specs the resources that instances and jobs need."""

from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import InstanceOwner, InstanceSpec
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.nodes import Resources, instance_resources, job_resources
from sagehen.placement.choice import Workload

__all__ = ["workload_of_instance", "workload_of_job"]


def workload_of_instance(spec: InstanceSpec) -> Workload:
    """Instances of a variant, and of a transform job, are spread."""
    kind = "job" if spec.owner is InstanceOwner.TRANSFORM_JOB else "endpoint"
    urls = (container.model_data_url for container in spec.containers)
    return Workload(
        resources=_resources_of_instance(spec),
        group=f"{kind}/{spec.endpoint_name}/{spec.variant_name}",
        models=frozenset(url for url in urls if url),
        instance_type=spec.instance_type,
    )


def workload_of_job(spec: JobSpec) -> Workload:
    try:
        resources = job_resources(spec)
    except Invalid:
        resources = Resources()  # the agent refuses the job, with the reason
    return Workload(resources=resources, instance_type=spec.instance_type, is_job=True)


def _resources_of_instance(spec: InstanceSpec) -> Resources:
    try:
        return instance_resources(spec)
    except Invalid:
        return Resources()  # the agent refuses the instance, with the reason
