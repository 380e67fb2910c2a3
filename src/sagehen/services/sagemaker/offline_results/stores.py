"""Says which stores endpoints need, and which of them are there: pure functions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from sagehen.frame.offline_results.definition import OfflineResults, store_name
from sagehen.frame.offline_results.store import StoreInfo
from sagehen.frame.routes import OfflineRoute
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)

__all__ = [
    "NO_STORES",
    "StoreRequest",
    "StoreStates",
    "are_ready",
    "failure_of",
    "family_of",
    "offline_route",
    "requested_stores",
]


class StoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A store that an endpoint needs."""

    file: str
    results: OfflineResults


@dataclass(frozen=True)
class StoreStates:
    """Stores by the name of their file; the others are still to be built."""

    ready: Mapping[str, StoreInfo] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """why a store could not be built"""


NO_STORES = StoreStates()


def requested_stores(endpoints: Iterable[EndpointRecord]) -> tuple[StoreRequest, ...]:
    """Returns the stores of all endpoints that serve or come to."""
    requests = {
        name: StoreRequest(file=name, results=results)
        for endpoint in endpoints
        if endpoint.status not in (EndpointStatus.DELETING, EndpointStatus.FAILED)
        for deployment in (endpoint.current, endpoint.target)
        for name, results in _stores(deployment)
    }
    return tuple(requests.values())


def are_ready(deployment: Deployment, states: StoreStates) -> bool:
    """Whether each variant with offline results has a store, of this revision or an earlier one."""
    return all(
        _newest(deployment.deployment_id, variant, states) is not None
        for variant in deployment.variants
        if variant.offline_results is not None
    )


def failure_of(deployment: Deployment, states: StoreStates) -> str | None:
    """Returns why a variant can have no store, if one has none."""
    for variant in deployment.variants:
        results = variant.offline_results
        if results is not None and _newest(deployment.deployment_id, variant, states) is None:
            name = store_name(deployment.deployment_id, variant.name, results.revision)
            if name in states.failures:
                return (
                    f"The offline results of variant {variant.name} cannot be used: "
                    f"{states.failures[name]}"
                )
    return None


def offline_route(
    deployment_id: str, variant: VariantPlan, states: StoreStates
) -> OfflineRoute | None:
    """Returns the newest store of a variant: the old one serves until a new one is whole."""
    file = _newest(deployment_id, variant, states)
    if file is None or variant.offline_results is None:
        return None
    return OfflineRoute(file=file, results=variant.offline_results)


def family_of(file: str) -> str:
    """Returns what all revisions of a store have in common."""
    return file.rsplit(".", 2)[0]


def _stores(deployment: Deployment | None) -> Iterator[tuple[str, OfflineResults]]:
    for variant in deployment.variants if deployment else ():
        results = variant.offline_results
        if deployment is not None and results is not None:
            yield store_name(deployment.deployment_id, variant.name, results.revision), results


def _newest(deployment_id: str, variant: VariantPlan, states: StoreStates) -> str | None:
    results = variant.offline_results
    if results is None:
        return None
    names = (
        store_name(deployment_id, variant.name, revision)
        for revision in range(results.revision, -1, -1)
    )
    return next((name for name in names if name in states.ready), None)
