"""Which column of the gateways' board each routed instance has.

Where containers are invoked directly each of them has one, as each has slots of its own.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from sagehen.domain.routes import (
    BOARD_COLUMNS,
    ExecutionMode,
    InstanceRoute,
    Route,
    VariantRoute,
)

__all__ = ["assign_columns", "columns_of", "with_columns"]


def assign_columns(wanted: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
    """A column for each of `wanted`; those beyond the board's last get none.

    Args:
        before: the columns of the table in force. Who stays routed keeps its own; those of who
            leaves are free again.
    """
    wanted = list(dict.fromkeys(wanted))
    columns = {one: before[one] for one in wanted if one in before}
    taken = set(columns.values())
    free = (column for column in range(BOARD_COLUMNS) if column not in taken)
    columns.update(zip((one for one in wanted if one not in columns), free, strict=False))
    return columns


def columns_of(routes: Mapping[str, Route]) -> dict[str, int]:
    """The columns in a table: by instance id, or by `instance id/hostname`."""
    return {
        key: column
        for route in routes.values()
        for key, column in _held(route)
        if column is not None
    }


def with_columns(routes: Mapping[str, Route], before: Mapping[str, Route]) -> dict[str, Route]:
    """`routes` with a column for each that needs one; `before` is the table in force."""
    wanted = sorted(key for route in routes.values() for key, _ in _held(route))
    columns = assign_columns(wanted, columns_of(before))
    return {name: _placed(route, columns) for name, route in routes.items()}


def _held(route: Route) -> Iterator[tuple[str, int | None]]:
    """Who is to have a column, and the one that it has."""
    for variant in route.all_variants:
        for one in variant.instances:
            keys = _keys(variant, one)
            if keys:
                yield from zip(keys, (own.board_column for own in one.containers), strict=True)
            else:
                yield one.instance_id, one.board_column


def _keys(variant: VariantRoute, instance: InstanceRoute) -> list[str]:
    """Of its containers, where each is invoked for itself."""
    if variant.mode is not ExecutionMode.DIRECT:
        return []
    return [f"{instance.instance_id}/{container.hostname}" for container in variant.containers]


def _placed(route: Route, columns: Mapping[str, int]) -> Route:
    def placed(variant: VariantRoute) -> VariantRoute:
        instances = tuple(_with(one, _keys(variant, one), columns) for one in variant.instances)
        return replace(variant, instances=instances)

    return replace(
        route,
        variants=tuple(map(placed, route.variants)),
        shadow=None if route.shadow is None else placed(route.shadow),
    )


def _with(instance: InstanceRoute, keys: list[str], columns: Mapping[str, int]) -> InstanceRoute:
    if not keys:
        return replace(instance, board_column=columns.get(instance.instance_id))
    containers = tuple(
        replace(one, board_column=columns.get(key))
        for key, one in zip(keys, instance.containers, strict=True)
    )
    return replace(instance, board_column=None, containers=containers)
