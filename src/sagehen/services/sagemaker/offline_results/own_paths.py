"""`/_sagehen/offline-results/…`: the results from which endpoints answer without a model.

GET  …                       the stores of all endpoints
GET  …/{endpoint}            those of one
POST …/{endpoint}/refresh    build them again, as their objects have changed
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.errors import Conflict, NotFound
from sagehen.frame.offline_results.definition import store_name
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)
from sagehen.services.sagemaker.offline_results.builds import StoreBuilds
from sagehen.services.sagemaker.offline_results.stores import offline_route
from sagehen.state.database import Database

__all__ = ["OfflineResultPaths"]


class OfflineResultPaths:
    """Serves the requests about offline results."""

    def __init__(
        self, database: Database, builds: StoreBuilds, hint: Callable[[], None], clock: Clock
    ) -> None:
        """`hint` wakes the reconcile loop."""
        self._clock = clock
        self._database = database
        self._builds = builds
        self._hint = hint
        at = "/_sagehen/offline-results"
        self.routes = [
            own_route(at, {"GET": self._list}),
            own_route(at + "/{endpoint}", {"GET": self._describe}),
            own_route(at + "/{endpoint}/refresh", {"POST": self._refresh}),
        ]

    def _list(self, request: OwnPathRequest) -> dict[str, Any]:
        with self._database.read() as connection:
            records = endpoints.all(connection)
        return {"offline_results": self._described(records)}

    def _describe(self, request: OwnPathRequest) -> dict[str, Any]:
        name = request.path["endpoint"]
        with self._database.read() as connection:
            record = endpoints.get(connection, name)
        described = self._described([record] if record else [])
        if not described:
            raise _missing(name)
        return {"offline_results": described}

    def _refresh(self, request: OwnPathRequest) -> dict[str, Any]:
        """The new revision is in the state when this is answered, so no restart forgets it."""
        name = request.path["endpoint"]
        with self._database.write() as connection:
            record = endpoints.get_for_update(connection, name)
            if record is None or not any(_variants(record)):
                raise _missing(name)
            current = record.current
            if record.status is not EndpointStatus.IN_SERVICE or current is None:
                raise Conflict(
                    f"Endpoint {name} is {record.status.value}. Its results can be refreshed when "
                    "it is InService; an update reads them anyway."
                )
            refreshed = msgspec.structs.replace(
                current, variants=tuple(map(_next_revision, current.variants))
            )
            after = msgspec.structs.replace(
                record, current=refreshed, modified_at=self._clock.now()
            )
            endpoints.update(connection, after)
        self._hint()
        return {"refreshing": [each.name for each in refreshed.variants if _has_results(each)]}

    def _described(self, records: Iterable[EndpointRecord]) -> list[dict[str, Any]]:
        return [
            self._store(record.name, deployment, variant)
            for record in records
            for deployment, variant in _variants(record)
        ]

    def _store(self, endpoint: str, deployment: Deployment, variant: VariantPlan) -> dict[str, Any]:
        results, states = variant.offline_results, self._builds.states
        assert results is not None
        route = offline_route(deployment.deployment_id, variant, states)
        info = states.ready[route.file] if route else None
        file = store_name(deployment.deployment_id, variant.name, results.revision)
        return {
            "endpoint": endpoint,
            "variant": variant.name,
            "source": results.source,
            "key": results.key,
            "answer": results.answer,
            "request_key": results.request_key,
            "only": results.only,
            "max_broken_rows": results.max_broken_rows,
            "state": _state(file, states.ready, states.failures),
            "failure": states.failures.get(file),
            "keys": info.keys if info else None,
            "rows": info.rows if info else None,
            "broken_rows": info.broken_rows if info else None,
            "broken_examples": info.broken_examples if info else (),
            "bytes": self._builds.size(route.file) if route else None,
            "built_at": info.built_at if info else None,
        }


def _state(file: str, ready: Iterable[str], failures: Iterable[str]) -> str:
    return "Ready" if file in ready else "Failed" if file in failures else "Building"


def _variants(record: EndpointRecord) -> Iterator[tuple[Deployment, VariantPlan]]:
    deployments = {each.deployment_id: each for each in (record.target, record.current) if each}
    for deployment in deployments.values():
        for variant in filter(_has_results, deployment.variants):
            yield deployment, variant


def _has_results(variant: VariantPlan) -> bool:
    return variant.offline_results is not None


def _next_revision(variant: VariantPlan) -> VariantPlan:
    results = variant.offline_results
    if results is None:
        return variant
    newer = msgspec.structs.replace(results, revision=results.revision + 1)
    return msgspec.structs.replace(variant, offline_results=newer)


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no endpoint {name[:63]!r} with offline results.")
