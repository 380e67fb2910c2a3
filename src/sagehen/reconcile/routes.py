"""The route table: worked out from the records, and put where the gateways look."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from sagehen.domain.records import SERVING, EndpointRecord, InstanceRecord, VariantPlan
from sagehen.domain.routes import (
    ContainerRoute,
    InstanceRoute,
    Route,
    RouteTable,
    VariantRoute,
)
from sagehen.reconcile.columns import with_columns
from sagehen.reconcile.places import Places
from sagehen.reconcile.plan import DELETED_LET_GO_SECONDS, Reports

__all__ = ["Departures", "RouteFile", "build_routes", "routed_ids"]

log = logging.getLogger(__name__)


def build_routes(
    endpoints: Iterable[EndpointRecord],
    instances: Mapping[str, Sequence[InstanceRecord]],
    reports: Reports | None,
    before: Mapping[str, Route],
) -> dict[str, Route]:
    """What each endpoint that serves is reached by.

    An endpoint whose instances are all away keeps its route, with no instances in it.

    Args:
        instances: by endpoint name.
        reports: what the agent says now; where it is None, the records' last word counts.
        before: the table in force, whose instances keep their columns of the board.
    """
    places = Places(reports, _routed(before))
    routes = {
        endpoint.name: _route(endpoint, instances.get(endpoint.name, ()), places)
        for endpoint in endpoints
        if endpoint.status in SERVING and endpoint.current is not None
    }
    return with_columns(routes, before)


def _route(endpoint: EndpointRecord, instances: Sequence[InstanceRecord], places: Places) -> Route:
    deployment = endpoint.current
    assert deployment is not None
    mine = [
        one
        for one in instances
        if one.deployment_id == deployment.deployment_id and one.stop_at is None
    ]
    mine.sort(key=lambda one: one.instance_id)

    def routed(variant: VariantPlan) -> VariantRoute:
        found = (places.find(one) for one in mine if one.variant_name == variant.name)
        return VariantRoute(
            name=variant.name,
            weight=variant.weight,
            instances=tuple(one for one in found if one is not None),
            strategy=variant.strategy,
            multi_model=variant.multi_model,
            containers=_containers(variant),
            mode=variant.mode,
        )

    return Route(
        endpoint_name=endpoint.name,
        variants=tuple(map(routed, deployment.variants)),
        shadow=None if deployment.shadow is None else routed(deployment.shadow),
        asynchronous=deployment.asynchronous,
    )


def _containers(variant: VariantPlan) -> tuple[ContainerRoute, ...]:
    if len(variant.containers) == 1:
        return ()
    return tuple(ContainerRoute(one.hostname, one.multi_model) for one in variant.containers)


def routed_ids(routes: Mapping[str, Route]) -> set[str]:
    """The ids of all instances in a table."""
    return {one.instance_id for one in _routed(routes)}


def _routed(routes: Mapping[str, Route]) -> Iterator[InstanceRoute]:
    for route in routes.values():
        for variant in route.all_variants:
            yield from variant.instances


class Departures:
    """Which instances left the routes a moment ago, so that gateways may still send to them.

    The rows' `stop_at` is reckoned from the write that retires an instance. A control killed
    between that and the publishing leaves an instance in the routes for longer. (The next control
    need not know what left before it began: a process takes longer than that to start.)
    """

    def __init__(self) -> None:
        self._left_at: dict[str, float] = {}

    def note(self, before: Mapping[str, Route], after: Mapping[str, Route], now: float) -> None:
        """The table `before` was replaced by `after`."""
        still = routed_ids(after)
        self._left_at = {
            key: at
            for key, at in self._left_at.items()
            if key not in still and 0 <= now - at < DELETED_LET_GO_SECONDS
        }
        self._left_at.update(dict.fromkeys(routed_ids(before) - still, now))

    def settle_at(self, instance_id: str, now: float) -> float | None:
        """When the instance may be stopped; None where it may be now."""
        at = self._left_at.get(instance_id)
        if at is None or not 0 <= now - at < DELETED_LET_GO_SECONDS:
            return None
        return at + DELETED_LET_GO_SECONDS


class RouteFile:
    """The table on disk. One process at a time writes it; any number read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._published = _read(path)

    @property
    def routes(self) -> dict[str, Route]:
        """What is there now."""
        return self._published.routes if self._published else {}

    def publish(self, routes: dict[str, Route], leader: str | None = None) -> bool:
        """Put `routes` in place of what is there, at once and whole; False where they are equal.

        Args:
            leader: the control that works on the endpoints, where it is not this one.
        """
        before = self._published
        if before is not None and (before.routes, before.leader) == (routes, leader):
            return False
        version = before.version + 1 if before else 1
        table = RouteTable(routes=routes, version=version, leader=leader)
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_bytes(msgspec.json.encode(table))
        os.replace(beside, self._path)
        self._published = table
        log.info("Routes were published.", extra={"action": "publish_routes", "version": version})
        return True


def _read(path: Path) -> RouteTable | None:
    """What an earlier control left there; None where that is nothing of use."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RouteTable)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        log.warning("The route table was unreadable and is made anew.", extra={"action": "routes"})
        return None
