"""Which column of the gateways' board each routed instance has."""

from collections.abc import Iterable, Mapping

from sagehen.domain.routes import BOARD_COLUMNS, Route

__all__ = ["assign_columns", "columns_of"]


def assign_columns(instance_ids: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
    """A column for each of `instance_ids`; those beyond the board's last get none.

    Args:
        before: the columns of the table in force. An instance that stays routed keeps its own;
            those of instances that leave are free again.
    """
    wanted = list(dict.fromkeys(instance_ids))
    columns = {one: before[one] for one in wanted if one in before}
    taken = set(columns.values())
    free = (column for column in range(BOARD_COLUMNS) if column not in taken)
    columns.update(zip((one for one in wanted if one not in columns), free, strict=False))
    return columns


def columns_of(routes: Mapping[str, Route]) -> dict[str, int]:
    """The columns in a table, by instance id."""
    return {
        one.instance_id: one.board_column
        for route in routes.values()
        for variant in route.all_variants
        for one in variant.instances
        if one.board_column is not None
    }
