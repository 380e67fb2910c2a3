"""Wires a gateway together from settings and paths."""

import os
import random
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.frame.container_specs import read_end
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import Texts
from sagehen.gateway.admission.params import INVOKE, INVOKE_STREAM, CallReader, Operation, check_of
from sagehen.gateway.client.limits import ClientLimits, InvocationLimits
from sagehen.gateway.container.pool import Pool
from sagehen.gateway.dispatch import RequestDispatcher
from sagehen.gateway.gateway import Gateway, GatewayServer
from sagehen.gateway.invocation.invoker import ActiveRequests, Held, Invoker
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.metrics.request_metrics import AccessLog
from sagehen.gateway.multimodel.models import LoadedModels
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.routes import Routes
from sagehen.gateway.routing.sessions import Sessions
from sagehen.gateway.routing.shadow import Shadows
from sagehen.wire.signatures.sigv4 import Verifier

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["make_gateway"]


def _write_to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def make_gateway(
    settings: "Settings",
    home: Home,
    secrets: Mapping[str, str],
    clock: Clock,
    rng: random.Random,
    board: InflightTable,
    write: Callable[[str], object] = _write_to_stderr,
) -> Gateway:
    """Args:
    secrets: secret keys by access key.
    board: with this gateway's row.
    write: takes access log lines.
    """
    control = Pool(f"unix:{home.control_socket}", clock)
    agent = Pool(f"unix:{home.agent_socket}", clock)
    counters = Counters(str(os.getpid()), clock.now())
    hits = counters.limit_hits
    routes = Routes(home.routes, counters, clock, board)
    models = LoadedModels(agent)
    sessions = Sessions(home.sessions, clock)
    texts = Texts(settings.account_id, settings.region, settings.partition or "")
    verifier = Verifier(secrets, clock, settings.region)
    limits = InvocationLimits.of(settings)

    def admission(operation: Operation) -> Admission:
        calls = CallReader(operation, check_of(operation))
        return Admission(calls, verifier, routes, sessions, texts, rng.random)

    invoker = Invoker(
        admission=admission(INVOKE),
        stream_admission=admission(INVOKE_STREAM),
        models=models,
        sessions=sessions,
        shadows=Shadows(settings, clock, rng.random, models, hits),
        texts=texts,
        live=ActiveRequests(limits, hits, clock),
        held=Held(settings.max_held_body_bytes),
        limits=limits,
        limit_hits=hits,
        access_log=AccessLog(write, clock, hits) if settings.access_log else None,
        monotonic=clock.monotonic,
        why_ended=lambda one: read_end(home.container_end(one.instance_id), one.run_id),
        random=rng.random,
    )
    server = GatewayServer(
        RequestDispatcher(invoker, control), clock, rng, ClientLimits.of(settings), hits
    )
    return Gateway(server, invoker, routes, counters, control, agent, clock)
