"""Copies of stored configs and models, as endpoints are to run them."""

import uuid
from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection

from sagehen.api.async_configs import check_async_models, plan_async
from sagehen.api.call import Call
from sagehen.api.containers import containers_of
from sagehen.api.definitions import ENDPOINT_CONFIGS, MODELS
from sagehen.api.model_data import model_data_version
from sagehen.api.shadow_variants import check_shadow_models, variants_of
from sagehen.api.variants import plan_variant
from sagehen.domain.records import Deployment, VariantPlan
from sagehen.store import endpoint_configs, models

__all__ = ["copy_config", "look_up_versions", "retain"]


def look_up_versions(call: Call, config_name: str) -> Mapping[str, str]:
    """ETags of the model data that a config leads to, by address, as it lies there now.

    Instances that are started again later get the same, if their object is overwritten or gone by
    then. Looked up before the transaction that deploys: the object store may be far away.
    """
    with call.database.read() as connection:
        config = endpoint_configs.get(connection, config_name)
        variants = variants_of(config.definition) if config else []
        found = [models.get(connection, variant["ModelName"]) for variant in variants]
    containers = [one for model in found if model for one in containers_of(model.definition)]
    return dict(filter(None, (model_data_version(call, one) for one in containers)))


def copy_config(
    call: Call,
    connection: Connection,
    config_name: str,
    endpoint_name: str,
    versions: Mapping[str, str],
) -> Deployment:
    """A new deployment of a config, for the endpoint of that name.

    Raises:
        AwsError: the config is gone, or one of its models is, or is now of another kind.
    """
    config = ENDPOINT_CONFIGS.get(call, connection, config_name)
    plans, used = [], []
    for variant in variants_of(config.definition):
        model = MODELS.get(call, connection, variant["ModelName"])
        used.append(model)
        plans.append(plan_variant(variant, model, versions))
    check_shadow_models(config.definition, used)
    check_async_models(config.definition, used)
    count = len(config.definition["ProductionVariants"])
    return Deployment(
        deployment_id=uuid.uuid4().hex,
        config_name=config.name,
        variants=tuple(plans[:count]),
        shadow=next(iter(plans[count:]), None),
        asynchronous=plan_async(config.definition, call.settings, endpoint_name),
        async_inference_config=config.definition.get("AsyncInferenceConfig"),
        deployed_at=call.clock.now(),
    )


def retain(new: Deployment, old: Deployment, excluded: list[str]) -> Deployment:
    """`new` with the instance counts and weights of `old`'s variants of the same names.

    A shadow has them from a shadow only, whose weight means the same. `excluded` may hold
    `DesiredInstanceCount` and `DesiredWeight`, which then are `new`'s own.
    """
    had = {variant.name: variant for variant in old.variants}

    def retained(variant: VariantPlan, before: VariantPlan) -> VariantPlan:
        counts = variant if "DesiredInstanceCount" in excluded else before
        weights = variant if "DesiredWeight" in excluded else before
        return msgspec.structs.replace(
            variant, instance_count=counts.instance_count, weight=weights.weight
        )

    shadow = new.shadow
    if shadow is not None and old.shadow is not None and shadow.name == old.shadow.name:
        shadow = retained(shadow, old.shadow)
    variants = tuple(retained(one, had.get(one.name, one)) for one in new.variants)
    return msgspec.structs.replace(new, variants=variants, shadow=shadow)
