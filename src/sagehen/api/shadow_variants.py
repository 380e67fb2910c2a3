"""What goes with a shadow variant and what does not, as SageMaker has it."""

from collections.abc import Iterable
from typing import Any

from sagehen.api.containers import containers_of
from sagehen.api.refusals import refused
from sagehen.domain.records import ModelRecord
from sagehen.wire.faults import AwsError

__all__ = ["check_shadow", "check_shadow_models", "shadows_of", "variants_of"]

_NOT_WITH_SHADOWS = {
    "ServerlessConfig": "serverless inference (ServerlessConfig)",
    "AcceleratorType": "Elastic Inference (AcceleratorType)",
}


def shadows_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """The shadow variants in CreateEndpointConfig's parameters; checked, it is one at most."""
    return list(definition.get("ShadowProductionVariants", ()))


def variants_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """All variants in CreateEndpointConfig's parameters, the shadow last."""
    return [*definition["ProductionVariants"], *shadows_of(definition)]


def check_shadow(params: dict[str, Any]) -> None:
    """Check what CreateEndpointConfig is given with a shadow variant; its models come later.

    Raises:
        AwsError: there are more variants than can be, or something that goes with no shadow.
    """
    if not shadows_of(params):
        return
    counts = len(params["ProductionVariants"]), len(shadows_of(params))
    if counts != (1, 1):
        raise refused(
            "With ShadowProductionVariants there has to be one production variant and one shadow "
            "variant; there are {} and {}.".format(*counts)
        )
    if "AsyncInferenceConfig" in params:
        raise _not_with_shadows("asynchronous inference (AsyncInferenceConfig)")
    for variant in variants_of(params):
        for member, feature in _NOT_WITH_SHADOWS.items():
            if member in variant:
                raise _not_with_shadows(feature)
        if variant.get("InstanceType", "").startswith("ml.inf1."):
            raise _not_with_shadows(f"Inf1 instances ({variant['InstanceType']})")


def check_shadow_models(definition: dict[str, Any], models: Iterable[ModelRecord]) -> None:
    """Check the models of a config's variants.

    Raises:
        AwsError: the config has a shadow variant, and a model is of a kind that goes with none.
    """
    if not shadows_of(definition):
        return
    for model in models:
        containers = containers_of(model.definition)
        if len(containers) > 1:
            raise _not_with_shadows(f"models of several containers (model {model.name})")
        if any(one.get("Mode") == "MultiModel" for one in containers):
            raise _not_with_shadows(f"multi-model endpoints (model {model.name})")


def _not_with_shadows(feature: str) -> AwsError:
    return refused(f"Shadow variants are not supported with {feature}.")
