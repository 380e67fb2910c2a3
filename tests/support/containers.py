"""Models of several containers behind endpoints."""

import re
from typing import Any

from support.deploy import IMAGE, ROLE, Deployer

__all__ = ["deploy_several", "figure"]


def deploy_several(
    deploy: Deployer,
    name: str,
    *containers: dict[str, Any],
    mode: str | None = None,
    **variant: Any,
) -> dict[str, Any]:
    """An endpoint of that name, waited for. A container's `script` becomes its model data."""
    given = []
    for number, container in enumerate(containers, 1):
        members = {"Image": IMAGE, **container}
        script = members.pop("script", None)
        if script is not None:
            members["ModelDataUrl"] = deploy.upload(f"{name}/{number}.tar.gz", script)
        given.append(members)
    deploy.sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        Containers=given,
        **({"InferenceExecutionConfig": {"Mode": mode}} if mode else {}),
    )
    described = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        **variant,
    }
    deploy.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[described])
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return deploy.settled(name)


def figure(server: Any, metric: str, endpoint: str, container: str | None = None) -> float:
    """A value at `/_sagehen/metrics`, of the variant AllTraffic or one of its containers."""
    labels = [f'endpoint="{endpoint}"', 'variant="AllTraffic"']
    if container is not None:
        labels.insert(0, f'container="{container}"')
    said = re.escape("{" + ",".join(labels) + "}")
    told = server.get("/_sagehen/metrics").decode()
    found = re.search(rf"^sagehen_{metric}{said} (\S+)$", told, re.MULTILINE)
    return float(found[1]) if found else 0
