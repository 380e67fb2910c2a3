"""Where an invocation may go, and what it is refused for."""

from types import SimpleNamespace
from typing import Any

import pytest

from sagehen.frame.routes import VariantRoute
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import ErrorFactory
from sagehen.gateway.admission.params import INVOKE, INVOKE_STREAM, ParameterCheck, ParamsReader
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.routes import Endpoint, Variant
from sagehen.gateway.routing.sessions import StickySession
from sagehen.wire.errors import AwsError

INSTANCE: Any = SimpleNamespace(instance_id="i-1", run_id="r")
SESSION = StickySession(variant="Main", instance_id="i-1", run_id="r", expires=1.0)


def variant(name: str, weight: float = 1.0, **more: Any) -> Variant:
    route = VariantRoute(
        name=name, weight=weight, instances=(), multi_model=more.pop("multi_model", False)
    )
    counters = VariantCounters(endpoint="price", variant=name)
    return Variant(route, (INSTANCE,), counters, SimpleNamespace(remote=None), **more)  # type: ignore[arg-type]


class Routes:
    are_known = True
    leader: str | None = None

    def __init__(self) -> None:
        self.endpoints = {
            "price": Endpoint("price", (variant("Main", 3), variant("Other", 1))),
            "many": Endpoint("many", (variant("Main", multi_model=True),)),
            "direct": Endpoint("direct", (variant("Main", direct={"a": variant("Main")}),)),
            "later": Endpoint("later", (variant("Main"),), is_asynchronous=True),
        }

    def get(self, name: str) -> Endpoint | None:
        return self.endpoints.get(name)


class World:
    def __init__(self) -> None:
        self.routes = Routes()
        self.session: StickySession | None = SESSION
        self.random = 0.0
        self.verified: list[Any] = []

    def admit(self, endpoint: str = "price", operation: Any = INVOKE, **headers: str) -> Any:
        fields = {
            f"x-amzn-sagemaker-{key.replace('_', '-')}": value for key, value in headers.items()
        }
        request: Any = SimpleNamespace(
            method=b"POST",
            target=b"/endpoints/%b/invocations" % endpoint.encode(),
            fields=fields,
            headers=[(name.encode(), value.encode()) for name, value in fields.items()],
            request_id=b"the-id",
        )
        verifier: Any = SimpleNamespace(verify=self._verify)
        sessions: Any = SimpleNamespace(find=lambda *_: self.session)
        reader = ParamsReader(operation, ParameterCheck({}, lambda params: None))
        errors, routes = ErrorFactory("0" * 12, "us-east-1"), self.routes
        admission = Admission(reader, verifier, routes, sessions, errors, lambda: self.random)  # type: ignore[arg-type]
        return admission.admit(request, "digest")

    def _verify(self, head: Any, digest: str, service: str, unsigned_body: bool) -> None:
        self.verified.append((head.raw_path, digest, service))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("random", "name"), [(0.0, "Main"), (0.74, "Main"), (0.76, "Other")])
def test_a_variant_is_chosen_by_its_weight(world, random, name):
    world.random = random
    admitted = world.admit()
    assert (admitted.variant.route.name, admitted.instance) == (name, None)
    assert world.verified == [("/endpoints/price/invocations", "digest", "sagemaker")]


def test_a_variant_and_a_container_may_be_named(world):
    assert world.admit(target_variant="Other").variant.route.name == "Other"
    direct = world.routes.endpoints["direct"].variants[0].direct
    assert world.admit("direct", target_container_hostname="a").variant is direct["a"]


def test_a_session_goes_to_its_holder(world):
    admitted = world.admit(session_id="s")
    assert (admitted.instance, admitted.session_id) == (INSTANCE, "s")
    assert world.admit(session_id="NEW_SESSION").instance is None


REFUSED = {
    "no such variant": ({"target_variant": "None"}, "has no production variant None"),
    "no such container": (
        {"endpoint": "direct", "target_container_hostname": "b"},
        "has no container b. It has: a",
    ),
    "no container": ({"endpoint": "direct"}, "missing a target container hostname header"),
    "not direct": ({"target_container_hostname": "a"}, "not configured for direct invocation"),
    "no model": ({"endpoint": "many"}, "the-id is missing a target model header"),
    "not many": ({"target_model": "a"}, "is not a multi-model endpoint"),
    "asynchronous": ({"endpoint": "later"}, "is asynchronous"),
    "unknown": ({"endpoint": "none"}, "none of account 000000000000 not found"),
    "no session by stream": (
        {"operation": INVOKE_STREAM, "session_id": "NEW_SESSION"},
        "Begin it with InvokeEndpoint",
    ),
    "another variant's session": (
        {"session_id": "s", "target_variant": "Other"},
        "Session s is held by production variant Main, not by Other",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused(world, why):
    request, message = REFUSED[why]
    with pytest.raises(AwsError) as refused:
        world.admit(**request)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (None, "Session s of endpoint price is not known"),
        (StickySession("Main", "i-1", "an earlier run", 1.0), "The instance that held session s"),
        (StickySession("Gone", "i-1", "r", 1.0), "The instance that held session s"),
    ],
)
def test_a_session_that_ended_is_refused(world, session, message):
    world.session = session
    with pytest.raises(AwsError) as refused:
        world.admit(session_id="s")
    assert message in refused.value.message


def test_a_server_that_knows_no_routes_yet_does_not_say_that_an_endpoint_is_missing(world):
    world.routes.are_known = False
    with pytest.raises(AwsError) as refused:
        world.admit("none")
    assert refused.value.status == 503
    world.routes.leader = "host:/home"
    with pytest.raises(AwsError) as standing_by:
        world.admit("none")
    assert "the machine host with the home /home" in standing_by.value.message
