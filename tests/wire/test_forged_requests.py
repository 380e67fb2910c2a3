"""What is not rightly signed, or can be read in two ways, is never carried out: each operation of
each served service, by the real application. benchmarks/forged_requests.py does more of it."""

import itertools
from collections.abc import Iterable, Iterator

import pytest

from sagehen.services.messaging.sns.confirmation import LINKED
from sagehen.services.s3.operations import OPERATIONS as S3
from sagehen.wire.services import service
from sagehen.wire.signatures.sigv4 import Verifier
from support.forging import (
    KEY,
    REGION,
    SECRET,
    SPOKEN,
    Base,
    Forged,
    Sent,
    StillClock,
    ambiguous,
    bases,
    linked,
    signed,
    unsigned,
    wrongly_signed,
)
from support.recording import Recording, recording

SIGNING_NAMES = sorted({str(service(name).signing_name) for name, _ in SPOKEN} | {"execute-api"})
OWN = Base("execute-api", "PUT", "", "execute-api", Sent("PUT", "/_sagehen/stacks/a"), "GET")
EVERY = [*SPOKEN, ("execute-api", None)]


@pytest.fixture(scope="module")
def made() -> Iterator[Recording]:
    clock = StillClock()
    with recording(Verifier({KEY: SECRET}, clock, REGION), clock) as made:
        yield made


@pytest.fixture
async def app(made: Recording) -> Recording:
    made.executed.clear()
    return made


def of(name: str, spoken: str | None) -> list[Base]:
    return [OWN] if name == "execute-api" else bases(name, spoken)


def some(every: list[Base]) -> list[Base]:
    """Of a service with many operations every fourth, for what does not hang on the operation."""
    return every[:: 1 if len(every) < 100 else 4]


async def nothing_is_done(app: Recording, base: Base, forged: Iterable[Forged]) -> int:
    """How many were tried."""
    count = 0
    for one in forged:
        count += 1
        answer = await app.ask(one.sent.request, one.sent.lines)
        assert 400 <= answer.status < 500, (base.operation, one, answer)
        assert app.executed == [], (base.operation, one, app.executed)
    return count


@pytest.mark.parametrize(("name", "spoken"), EVERY)
async def test_what_is_rightly_signed_is_done(
    app: Recording, name: str, spoken: str | None
) -> None:
    """So that a request that is refused is so for its signature or its form."""
    served = [one for one in of(name, spoken) if name != "s3" or one.operation in S3]
    for base in served:
        for how in ("header", "link"):
            sent = signed(base.sent, base.signing_name, how)
            await app.ask(sent.request, sent.lines)
            done = [(one.service, one.operation) for one in app.executed]
            assert done == [(name, base.operation)], (how, sent)
            app.executed.clear()


@pytest.mark.parametrize(("name", "spoken"), EVERY)
async def test_what_is_not_signed_is_not_done(
    app: Recording, name: str, spoken: str | None
) -> None:
    every = of(name, spoken)
    for base in every:
        assert await nothing_is_done(app, base, [Forged("plain", unsigned(base.sent))]) == 1
    for base in some(every):
        forms = ambiguous(base)
        if (name, base.operation) not in LINKED:
            forms = itertools.chain(linked(base), forms)
        unsigned_forms = (Forged(one.how, unsigned(one.sent)) for one in forms)
        assert await nothing_is_done(app, base, unsigned_forms) > 0


@pytest.mark.parametrize(("name", "spoken"), EVERY)
async def test_what_is_wrongly_signed_is_not_done(
    app: Recording, name: str, spoken: str | None
) -> None:
    for base in some(of(name, spoken)):
        right = signed(base.sent, base.signing_name)
        link = signed(base.sent, base.signing_name, "link")
        guessed = signed(base.sent, base.signing_name, secret="guessed")
        forms = wrongly_signed(right, link, guessed)
        if (name, base.operation) in LINKED:
            # In small letters the parameters of a signature are none: it is a plain link.
            forms = (one for one in forms if one.how != "link, small letters")
        assert await nothing_is_done(app, base, forms) > 0


@pytest.mark.parametrize(("name", "spoken"), EVERY)
async def test_what_names_two_operations_is_not_done_though_it_is_signed(
    app: Recording, name: str, spoken: str | None
) -> None:
    for base in some(of(name, spoken)):
        forms = (Forged(one.how, signed_as_it_is(one.sent, base)) for one in ambiguous(base))
        await nothing_is_done(app, base, forms)


@pytest.mark.parametrize(("name", "spoken"), EVERY)
async def test_a_signature_for_another_service_is_good_for_that_one_only(
    app: Recording, name: str, spoken: str | None
) -> None:
    for base in of(name, spoken)[::5]:
        for other in SIGNING_NAMES:
            if other == base.signing_name:
                continue
            sent = signed(base.sent, other)
            await app.ask(sent.request, sent.lines)
            assert base.service not in [done.service for done in app.executed], sent
            app.executed.clear()


def signed_as_it_is(sent: Sent, base: Base) -> Sent:
    """Rightly, each header in its own case and as often as it comes."""
    whole = signed(sent, base.signing_name)
    added = [one for one in whole.headers if one[0] in ("Authorization", "X-Amz-Date", "Host")]
    length = ("Content-Length", str(len(sent.body)))
    kept = sent.without("content-length", "host", "authorization", "x-amz-date")
    return Sent(sent.method, whole.path, whole.query, (*kept, *added, length), sent.body)
