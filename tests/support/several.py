"""Routes to variants whose instances have several containers."""

from typing import Any

from sagehen.frame.routes import (
    ContainerAddress,
    ContainerRoute,
    ExecutionMode,
    InstanceRoute,
    VariantRoute,
)

HOSTNAMES = ("clean", "predict", "explain")


def several(
    *instances: tuple[Any, ...],
    mode: ExecutionMode = ExecutionMode.SERIAL,
    many: str = "",
    slots: int = 10,
) -> VariantRoute:
    """A variant; each of `instances` is its containers. The one called `many` holds many models."""
    hostnames = HOSTNAMES[: len(instances[0])]
    return VariantRoute(
        name="AllTraffic",
        weight=1,
        instances=tuple(
            InstanceRoute(
                instance_id=f"i-{number}",
                address=_address(places[0]),
                slots=slots,
                containers=tuple(ContainerAddress(_address(one), slots) for one in places),
            )
            for number, places in enumerate(instances)
        ),
        multi_model=bool(many),
        containers=tuple(ContainerRoute(one, one == many) for one in hostnames),
        mode=mode,
    )


def _address(place: Any) -> str:
    return str(getattr(place, "address", place))
