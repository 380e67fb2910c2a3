"""Wires a gateway together from settings and paths."""

import os
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.frame.container_specs import read_end
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import ErrorFactory
from sagehen.gateway.admission.params import (
    INVOKE,
    INVOKE_STREAM,
    Operation,
    ParamsReader,
    make_parameter_check,
)
from sagehen.gateway.client.limits import ClientLimits, InvocationLimits, LimitHits
from sagehen.gateway.dispatch import RequestDispatcher
from sagehen.gateway.gateway import Gateway, GatewayServer
from sagehen.gateway.invocation.context import ActiveRequests, BodyMemory, InvocationContext
from sagehen.gateway.leader_proxy import Leader
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.metrics.request_metrics import AccessLog
from sagehen.gateway.multimodel.model_leases import ModelLeases
from sagehen.gateway.peers.cluster import join_cluster
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.offline_answers import OfflineStores
from sagehen.gateway.routing.routes import Routes
from sagehen.gateway.routing.sessions import Sessions
from sagehen.gateway.routing.shadow import Shadows
from sagehen.gateway.routing.starts import Starts
from sagehen.http1.pool import Pool
from sagehen.wire.signatures.sigv4 import Verifier

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["make_gateway"]


def _write_to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _knows_endpoints(routes: Routes) -> bool:
    routes.refresh()
    return routes.are_known


def _name(home: Home) -> str:
    """Returns this process's name in its reports: gateways of other nodes may have its number."""
    try:
        return f"{home.node_id.read_text().strip()}/{os.getpid()}"
    except FileNotFoundError:
        return str(os.getpid())


def _end_reason(home: Home, instance: RoutedInstance) -> str | None:
    if instance.is_remote:
        return ""  # its node is gone, and knows alone
    return read_end(home.container_end(instance.instance_id), instance.run_id)


def _make_context(
    settings: "Settings",
    home: Home,
    secrets: Mapping[str, str],
    clock: Clock,
    rng: random.Random,
    routes: Routes,
    agent: Pool,
    hits: LimitHits,
    access_log: AccessLog | None,
) -> InvocationContext:
    models = ModelLeases(agent)
    sessions = Sessions(home.sessions, clock)
    errors = ErrorFactory(settings.account_id, settings.region, settings.partition or "")
    verifier = Verifier(secrets, clock, settings.region)
    limits = InvocationLimits.of(settings)

    def admission(operation: Operation) -> Admission:
        reader = ParamsReader(operation, make_parameter_check(operation))
        return Admission(reader, verifier, routes, sessions, errors, rng.random)

    return InvocationContext(
        admission=admission(INVOKE),
        stream_admission=admission(INVOKE_STREAM),
        models=models,
        sessions=sessions,
        shadows=Shadows(settings, clock, rng.random, models, hits),
        errors=errors,
        active=ActiveRequests(limits, hits, clock),
        body_memory=BodyMemory(settings.max_held_body_bytes),
        limits=limits,
        limit_hits=hits,
        access_log=access_log,
        monotonic=clock.monotonic,
        now=clock.now,
        end_reason=partial(_end_reason, home),
        random=rng.random,
    )


def make_gateway(
    settings: "Settings",
    home: Home,
    secrets: Mapping[str, str],
    clock: Clock,
    rng: random.Random,
    inflight: InflightTable,
    write: Callable[[str], object] = _write_to_stderr,
) -> Gateway:
    """Args:
    secrets: secret keys by access key.
    inflight: with this gateway's row.
    write: called with access log lines.
    """
    control = Pool(f"unix:{home.control_socket}", clock)
    agent = Pool(f"unix:{home.agent_socket}", clock)
    counters = Counters(_name(home))
    hits = counters.limit_hits
    offline = OfflineStores(home.offline_results)
    starts = Starts(control, clock, lambda: routes.refresh())
    cluster = join_cluster(home, clock, inflight, rng.random)
    peers = None if cluster is None else cluster.peers
    leader = Leader(clock)
    routes = Routes(home.routes, counters, clock, inflight, offline, starts, peers, leader.follow)
    access_log = AccessLog(write, clock, hits) if settings.access_log else None
    context = _make_context(settings, home, secrets, clock, rng, routes, agent, hits, access_log)
    # A control knows the endpoints of its own machine before it answers; a cluster's nodes are sent
    # their table, some time after they have started.
    is_ready = partial(_knows_endpoints, routes) if cluster is not None else lambda: True
    dispatcher = RequestDispatcher(context, control, leader, is_ready)
    server = GatewayServer(dispatcher, clock, rng, ClientLimits.of(settings), hits)
    if cluster is not None:
        cluster.open_door(context, routes)
    return Gateway(
        server, context, routes, counters, control, agent, clock, starts, leader, cluster
    )
