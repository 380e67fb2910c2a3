"""The routes in force, of which a pass builds those of some endpoints anew.

The result is that of `build_routes` for all endpoints, at a cost that depends on those some.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import TypeVar

from sagehen.frame.routes import Route
from sagehen.services.sagemaker.hosting.reconciler.columns import (
    assign_columns,
    column_keys,
    columns_of,
    given_columns,
    routed_instances,
)
from sagehen.services.sagemaker.hosting.reconciler.plan import Reports
from sagehen.services.sagemaker.hosting.reconciler.routes import InstanceAddresses, route_of
from sagehen.services.sagemaker.hosting.reconciler.rows import EndpointRows
from sagehen.services.sagemaker.offline_results.stores import NO_STORES, StoreStates

__all__ = ["LiveRoutes", "of_names"]

T = TypeVar("T")


class LiveRoutes:
    """Remembers which columns are taken."""

    def __init__(self) -> None:
        self._followed: Mapping[str, Route] = {}
        self._owners: dict[int, str] = {}
        """the endpoint that has a column"""
        self._columns: dict[str, list[int]] = {}
        """of each endpoint"""
        self._short: set[str] = set()
        """endpoints that lack a column, as all were taken"""

    def build(
        self,
        before: dict[str, Route],
        names: Collection[str],
        rows: EndpointRows,
        reports: Reports | None,
        stores: StoreStates = NO_STORES,
        reserved: Iterable[int] = (),
    ) -> dict[str, Route]:
        """Returns `before` itself where nothing changes.

        Args:
            before: the routes in force, whose columns are kept.
            names: the endpoints of which anything may have changed.
            reserved: columns of instances that leave.
        """
        if before is not self._followed:
            self._follow(before)
        names = {*names, *self._short}
        old = of_names(before, names)
        addresses = InstanceAddresses(reports, routed_instances(old))
        built = {
            name: route
            for name in sorted(names)
            if (route := route_of(name, rows, addresses, stores)) is not None
        }
        columns = assign_columns(
            sorted(chain.from_iterable(map(column_keys, built.values()))),
            columns_of(old),
            reserved,
            lambda column: column not in self._owners or self._owners[column] in names,
        )
        built = {name: given_columns(route, columns) for name, route in built.items()}
        if built == old:
            return before
        after = {name: route for name, route in before.items() if name not in names}
        after.update(built)
        self._note(names, built, columns)
        self._followed = after
        return after

    def _follow(self, routes: Mapping[str, Route]) -> None:
        self._owners, self._columns, self._short = {}, {}, set()
        self._note((), routes, columns_of(routes))
        self._followed = routes

    def _note(
        self, names: Collection[str], routes: Mapping[str, Route], columns: Mapping[str, int]
    ) -> None:
        """Replaces what is known of `names`."""
        for name in names:
            for column in self._columns.pop(name, ()):
                del self._owners[column]
        self._short.difference_update(names)
        for name, route in routes.items():
            keys = list(column_keys(route))
            self._columns[name] = [columns[key] for key in keys if key in columns]
            self._owners.update(dict.fromkeys(self._columns[name], name))
            if len(self._columns[name]) < len(keys):
                self._short.add(name)


def of_names(values: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    return {name: values[name] for name in names if name in values}
