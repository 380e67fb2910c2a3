"""The columns of the gateways' shared in-flight table.

Each routed instance has one; if its containers are invoked directly, each of them has one. A
serverless variant has one for all its requests.

An instance that leaves the routes keeps its columns until its row is gone: gateways go on counting
its last requests there, and control waits for them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from sagehen.frame.routes import (
    INFLIGHT_COLUMNS,
    ExecutionMode,
    InstanceRoute,
    Route,
    VariantRoute,
)
from sagehen.services.sagemaker.hosting.records import InstanceRecord

__all__ = [
    "assign_columns",
    "column_keys",
    "columns_of",
    "given_columns",
    "instance_columns",
    "leaving_columns",
    "routed_instances",
    "with_columns",
]


def assign_columns(
    keys: Iterable[str],
    before: Mapping[str, int],
    reserved: Iterable[int] = (),
    is_free: Callable[[int], bool] = lambda column: True,
) -> dict[str, int]:
    """Assign a column to each of `keys`, as long as there are free ones.

    Args:
        before: the columns in force, which are kept.
        reserved: columns that others have.
        is_free: whether others, besides, do not have the column.
    """
    keys = list(dict.fromkeys(keys))
    columns = {key: before[key] for key in keys if key in before}
    taken = {*columns.values(), *reserved}
    free = (each for each in range(INFLIGHT_COLUMNS) if each not in taken and is_free(each))
    columns.update(zip((key for key in keys if key not in columns), free, strict=False))
    return columns


def columns_of(routes: Mapping[str, Route]) -> dict[str, int]:
    return {
        key: column
        for route in routes.values()
        for key, column in _columns(route)
        if column is not None
    }


def with_columns(
    routes: Mapping[str, Route], before: Mapping[str, Route], reserved: Iterable[int] = ()
) -> dict[str, Route]:
    keys = sorted(key for route in routes.values() for key in column_keys(route))
    columns = assign_columns(keys, columns_of(before), reserved)
    return {name: given_columns(route, columns) for name, route in routes.items()}


def column_keys(route: Route) -> Iterator[str]:
    """Yields what gets a column each."""
    return (key for key, _ in _columns(route))


def instance_columns(routes: Mapping[str, Route]) -> dict[str, tuple[int, ...]]:
    """Returns the columns of each instance's requests: several if its containers are invoked
    directly, none if there are too many instances."""
    return {
        instance.instance_id: tuple(
            column
            for column in (
                instance.inflight_column,
                *(container.inflight_column for container in instance.containers),
            )
            if column is not None
        )
        for instance in routed_instances(routes)
    }


def leaving_columns(
    instances: Iterable[InstanceRecord],
    before: Mapping[str, Route],
    leaving: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """Returns the columns of instances that are to stop. Gateways go on counting their requests
    in these.

    Args:
        before: the routes in force.
        leaving: the columns that the same instances have kept in force.
    """
    columns = {**instance_columns(before), **leaving}
    return {
        instance.instance_id: kept
        for instance in instances
        if instance.stop_at is not None and (kept := columns.get(instance.instance_id))
    }


def _columns(route: Route) -> Iterator[tuple[str, int | None]]:
    for variant in route.all_variants:
        if variant.on_demand is not None and variant.on_demand.max_concurrency is not None:
            yield _variant_key(route, variant), variant.on_demand.inflight_column
        for instance in variant.instances:
            keys = _keys(variant, instance)
            if keys:
                yield from zip(
                    keys, (own.inflight_column for own in instance.containers), strict=True
                )
            else:
                yield instance.instance_id, instance.inflight_column


def _variant_key(route: Route, variant: VariantRoute) -> str:
    # No instance's id has a slash before its container's hostname.
    return f"/{route.endpoint_name}/{variant.name}"


def _keys(variant: VariantRoute, instance: InstanceRoute) -> list[str]:
    if variant.mode is not ExecutionMode.DIRECT:
        return []
    return [f"{instance.instance_id}/{container.hostname}" for container in variant.containers]


def given_columns(route: Route, columns: Mapping[str, int]) -> Route:
    """Returns the route with these columns, by the keys of `column_keys`."""

    def assign(variant: VariantRoute) -> VariantRoute:
        instances = tuple(
            _with_column(instance, _keys(variant, instance), columns)
            for instance in variant.instances
        )
        on_demand = variant.on_demand
        if on_demand is not None and on_demand.max_concurrency is not None:
            column = columns.get(_variant_key(route, variant))
            on_demand = replace(on_demand, inflight_column=column)
        return replace(variant, instances=instances, on_demand=on_demand)

    return replace(
        route,
        variants=tuple(map(assign, route.variants)),
        shadow=None if route.shadow is None else assign(route.shadow),
    )


def _with_column(
    instance: InstanceRoute, keys: list[str], columns: Mapping[str, int]
) -> InstanceRoute:
    if not keys:
        return replace(instance, inflight_column=columns.get(instance.instance_id))
    containers = tuple(
        replace(container, inflight_column=columns.get(key))
        for key, container in zip(keys, instance.containers, strict=True)
    )
    return replace(instance, inflight_column=None, containers=containers)


def routed_instances(routes: Mapping[str, Route]) -> Iterator[InstanceRoute]:
    for route in routes.values():
        for variant in route.all_variants:
            yield from variant.instances
