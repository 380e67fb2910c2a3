"""Reads from specs the resources that instances and jobs need."""

from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import ContainerSpec, InstanceOwner, InstanceSpec
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.nodes import Resources, instance_resources, job_resources, model_version
from sagehen.frame.s3_locations import parse_location
from sagehen.placement.choice import Workload

__all__ = ["workload_of_instance", "workload_of_job"]


def workload_of_instance(spec: InstanceSpec) -> Workload:
    """Instances of a variant, and of a transform job, are spread."""
    kind = "job" if spec.owner is InstanceOwner.TRANSFORM_JOB else "endpoint"
    return Workload(
        resources=_resources_of_instance(spec),
        group=f"{kind}/{spec.endpoint_name}/{spec.variant_name}",
        models=frozenset(filter(None, map(_model_of, spec.containers))),
        instance_type=spec.instance_type,
    )


def workload_of_job(spec: JobSpec) -> Workload:
    try:
        resources = job_resources(spec)
    except Invalid:
        resources = Resources()  # the agent refuses the job, with the reason
    return Workload(resources=resources, instance_type=spec.instance_type, is_job=True)


def _model_of(container: ContainerSpec) -> str | None:
    """Returns the prefix of a multi-model container."""
    if container.model_data_url is None:
        return None
    try:
        url = parse_location(container.model_data_url).url
    except Invalid:
        return None  # the agent refuses the instance, with the reason
    return model_version(url, None if container.multi_model else container.model_data_etag)


def _resources_of_instance(spec: InstanceSpec) -> Resources:
    try:
        return instance_resources(spec)
    except Invalid:
        return Resources()  # the agent refuses the instance, with the reason
