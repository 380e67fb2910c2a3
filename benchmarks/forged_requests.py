"""How many forged requests are carried out: none may be.

    python3 benchmarks/forged_requests.py [--mutated 1000000] [--live 30000] [--seed 7] [--save]

1. Each operation of each served service in each form that could be read in two ways, unsigned,
   wrongly signed and rightly signed.
2. Requests that are rightly signed, or links that need no signature, each changed at random in one
   to four places. One is carried out rightly if it still means what was signed; any other one is
   a forgery.
3. Such requests over sockets to a real server, all of them wrongly signed or changed so that they
   mean something else. None may succeed, and what the server holds must be the same afterwards.

1 and 2 run in as many processes as there are cores, by the real application, whose operations are
replaced by recorders (tests/support/recording.py). Exit status 1 where anything was carried out, or
an internal error was answered.
"""

import asyncio
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore.auth import HmacV1QueryAuth
from frame import heading, keep, options, row_of
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from mutations import MUTATIONS, mutated

from sagehen.services.messaging.sns.confirmation import LINKED
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
    ask,
    bases,
    linked,
    signed,
    unsigned,
    wrongly_signed,
)
from support.recording import Executed, Recording, recording
from support.server import server_maker

PIECE = 10_000
"""Requests that a process makes between two looks at how far all are."""


def main() -> None:
    parser = options(__doc__, seconds=0)
    parser.add_argument("--mutated", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    os.nice(5)
    began = time.monotonic()
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        whole = pool.map(every_form, SPOKEN, chunksize=1)
        seeds = range(arguments.seed * 10**6, arguments.seed * 10**6 + arguments.mutated // PIECE)
        pieces = pool.map(mutate, seeds, chunksize=1)
    live = over_sockets(arguments.live, arguments.seed)
    seconds = time.monotonic() - began
    report, forged = written(whole, pieces, live, arguments.seed, seconds)
    print(report)
    if arguments.save:
        keep(report, "forged-requests")
    sys.exit(1 if forged else 0)


def run(work: Any) -> Any:
    """Do asynchronous work with an application of its own."""
    clock = StillClock()
    with recording(Verifier({KEY: SECRET}, clock, REGION), clock) as app:
        return asyncio.run(work(app))


# 1. Every form


def every_form(spoken: tuple[str, str | None]) -> Counter[str]:
    return run(lambda app: _every_form(app, *spoken))


async def _every_form(app: Recording, name: str, spoken: str | None) -> Counter[str]:
    counted: Counter[str] = Counter()
    for base in bases(name, spoken):
        counted["operations"] += 1
        for kind, forged in _forms_of(base):
            counted[kind] += 1
            await app.ask(forged.sent.request, forged.sent.lines)
            if app.executed:
                counted[f"carried out: {kind}"] += 1
                print(f"CARRIED OUT {kind}, {forged}: {app.executed}", file=sys.stderr)
                app.executed.clear()
    return counted


def _forms_of(base: Base) -> Iterator[tuple[str, Forged]]:
    name = base.signing_name
    two = list(ambiguous(base))
    behind = [] if (base.service, base.operation) in LINKED else list(linked(base))
    for forged in (Forged("plain", base.sent), *behind, *two):
        yield "unsigned", Forged(forged.how, unsigned(forged.sent))
    for forged in (Forged("plain", base.sent), *two):
        right = signed(forged.sent, name)
        link = signed(forged.sent, name, "link")
        guessed = signed(forged.sent, name, secret="guessed")
        for wrong in wrongly_signed(right, link, guessed):
            # In small letters the parameters of a signature are none: a link of SNS stays one.
            if wrong.how != "link, small letters" or (base.service, base.operation) not in LINKED:
                yield "wrongly signed", Forged(f"{forged.how}, {wrong.how}", wrong.sent)
    for forged in two:
        yield "rightly signed, two operations named", Forged(forged.how, signed(forged.sent, name))
        yield (
            "rightly signed, two operations named",
            Forged(forged.how, signed(forged.sent, name, "link")),
        )


# 2. Mutations


def mutate(seed: int) -> Counter[str]:
    return run(lambda app: _mutate(app, random.Random(seed)))


_BASES: list[tuple[Base, str, Sent, Executed]] = []
"""valid requests to mutate, each with its meaning; made once in each process"""


async def _mutate(app: Recording, rng: random.Random) -> Counter[str]:
    if not _BASES:
        _BASES.extend([entry async for entry in _rightly_signed(app)])
    counted: Counter[str] = Counter()
    for _ in range(PIECE):
        base, how, sent, meaning = rng.choice(_BASES)
        changed, names = mutated(sent, base, rng)
        counted["requests"] += 1
        counted.update(names)
        if changed == sent:
            counted["left as it was"] += 1
        answer = await app.ask(changed.request, changed.lines)
        counted[f"{answer.status // 100}xx"] += 1
        if answer.status == 500:
            counted["internal errors"] += 1
            print(f"INTERNAL ERROR by {names} of {sent}: {changed}", file=sys.stderr)
        for done in app.executed:
            if done == meaning or (how == "old link" and _as_signed(done) == _as_signed(meaning)):
                counted["still what was signed"] += 1
            elif done.by_link and (done.service, done.operation) in LINKED:
                counted["a link, which needs no signature"] += 1
            else:
                counted["forged"] += 1
                print(f"FORGED by {names}: {changed}: {done}, not {meaning}", file=sys.stderr)
        app.executed.clear()
    return counted


def _as_signed(done: Executed) -> Executed:
    """The claims of a link in S3's older signature, without a list's length and form."""
    signed_names = {*HmacV1QueryAuth.QSAOfInterest, "Bucket", "Key"}
    params = {
        name: value
        for name, value in done.params.items()
        if name in signed_names or name.startswith("the header ")
    }
    return Executed(done.service, done.operation.removesuffix("V2"), params)


async def _rightly_signed(app: Recording) -> Any:
    """Each operation by a header and by links, those that are carried out."""
    own = Base("execute-api", "PUT", "", "execute-api", Sent("PUT", "/_sagehen/stacks/a"), "GET")
    every = [entry for name, spoken in SPOKEN for entry in bases(name, spoken)]
    # So that half of all requests are not SageMaker's: one in four of long lists.
    counts = Counter((entry.service, entry.protocol) for entry in every)
    numbered = enumerate(every)
    selected = [
        entry
        for at, entry in numbered
        if counts[entry.service, entry.protocol] < 100 or at % 4 == 0
    ]
    for base, how in itertools.product([own] * 20 + selected, ("header", "link", "old link")):
        if how == "old link" and (base.service != "s3" or "x-amz-" in str(base.sent.headers)):
            continue
        sent = signed(base.sent, base.signing_name, how)
        await app.ask(sent.request, sent.lines)
        if app.executed:
            yield base, how, sent, app.executed[0]
        app.executed.clear()
        if (base.service, base.operation) in LINKED:
            query = base.sent.body.decode()
            link = Sent("GET", "/", query, (("Host", "127.0.0.1:9000"),))
            yield base, "unsigned", link, Executed("sns", base.operation, {}, True)


# 3. Over sockets


def over_sockets(count: int, seed: int) -> Counter[str]:
    counted: Counter[str] = Counter()
    if not count:
        return counted
    rng = random.Random(seed)
    with server_maker() as make:
        server = make()
        host = server.url.removeprefix("http://")
        before = _server_content(server)
        chosen = _wrong_ones(server, host, rng)
        while counted["requests"] < count:
            kind, sent = next(chosen)
            counted["requests"] += 1
            counted[kind] += 1
            try:
                status, body = ask(host, sent)
            except UnicodeError:
                continue
            counted[f"{status // 100}xx" if status else "no answer"] += 1
            if status == 500:
                counted["internal errors"] += 1
                print(f"INTERNAL ERROR, live: {sent}: {body[:300]!r}", file=sys.stderr)
            if 200 <= status < 300 and b"<UnsubscribeResponse" in body:
                counted["a link, which needs no signature"] += 1
            elif 200 <= status < 300:
                counted["forged"] += 1
                print(f"FORGED, live: {sent}: {status} {body[:300]!r}", file=sys.stderr)
        if _server_content(server) != before:
            counted["forged"] += 1
            print(f"CHANGED, live: {before} is now {_server_content(server)}", file=sys.stderr)
    return counted


def _wrong_ones(server: Any, host: str, rng: random.Random) -> Iterator[tuple[str, Sent]]:
    keys = {
        "key": server.env["AWS_ACCESS_KEY_ID"],
        "secret": server.env["AWS_SECRET_ACCESS_KEY"],
    }
    every = [one for name, spoken in SPOKEN for one in bases(name, spoken)]
    every = [one for one in every if (one.service, one.operation) not in LINKED]
    while True:
        base = rng.choice(every)
        how = rng.choice(["header", "link"])
        right = signed(base.sent, base.signing_name, how, now=time.time(), host=host, **keys)
        if rng.random() < 0.4:
            other = {**keys, "secret": "guessed"}
            wrong = signed(base.sent, base.signing_name, how, now=time.time(), host=host, **other)
            yield "wrongly signed and changed", mutated(wrong, base, rng)[0]
        elif rng.random() < 0.3:
            forms = [*linked(base), *ambiguous(base)]
            plain = Forged("plain", base.sent)
            one = unsigned(rng.choice([plain, *forms]).sent)
            yield "unsigned and changed", mutated(one, base, rng, unsigned_only=True)[0]
        else:
            names = [one for one in MUTATIONS if one.__name__.startswith("another_")]
            changed = rng.choice(names)(right, base, rng)
            if changed != right:
                yield "rightly signed, then for something else", changed


def _server_content(server: Any) -> str:
    """The resources that forged requests would change."""
    sns, sqs, s3 = (server.client(name) for name in ("sns", "sqs", "s3"))
    sagemaker, events = server.client("sagemaker"), server.client("events")
    return json.dumps(
        [
            sns.list_topics()["Topics"],
            sns.list_subscriptions()["Subscriptions"],
            sqs.list_queues().get("QueueUrls", []),
            [entry["Name"] for entry in s3.list_buckets()["Buckets"]],
            [entry["ModelName"] for entry in sagemaker.list_models()["Models"]],
            [entry["EndpointName"] for entry in sagemaker.list_endpoints()["Endpoints"]],
            [entry["Name"] for entry in events.list_rules()["Rules"]],
        ]
    )


# What is told


def written(
    whole: list[Counter[str]],
    pieces: list[Counter[str]],
    live: Counter[str],
    seed: int,
    seconds: float,
) -> tuple[str, int]:
    """The report, and how many forged requests were carried out."""
    forms, changed = sum(whole, Counter()), sum(pieces, Counter())
    lines = [*heading("Forged requests"), *describe_machine(("sagehen", "botocore"), load=False)]
    lines += [f"- seed {seed}; {seconds:.0f} s, at nice 5", ""]
    kinds = ["unsigned", "wrongly signed", "rightly signed, two operations named"]
    lines += [
        f"Each form of {forms['operations']} operations (a service's in each of its protocols):",
        "",
    ]
    lines += ["| form | requests | carried out |", "|---|---|---|"]
    carried = [forms[f"carried out: {kind}"] for kind in kinds]
    lines += [
        row_of([kind, f"{forms[kind]:,}", str(count)])
        for kind, count in zip(kinds, carried, strict=True)
    ]
    lines += ["", "Rightly signed requests, changed at random, in process:", ""]
    lines += _counts(
        changed, ["left as it was", "still what was signed", "a link, which needs no signature"]
    )
    lines += ["", "| change | times |", "|---|---|"]
    lines += [
        row_of([entry.__name__.replace("_", " "), f"{changed[entry.__name__]:,}"])
        for entry in MUTATIONS
    ]
    lines += ["", "Over sockets, to a real server:", ""]
    kinds = sorted(entry for entry in live if "signed" in entry and "link" not in entry)
    lines += _counts(live, [*kinds, "a link, which needs no signature"])
    forged = sum(carried) + changed["forged"] + live["forged"]
    faults = changed["internal errors"] + live["internal errors"]
    met = "met" if not forged and not faults else "MISSED"
    lines += [
        "",
        f"- {forged} forged requests carried out, {faults} internal errors, target none: {met}",
    ]
    return "\n".join([*lines, ""]), forged + faults


def _counts(counted: Counter[str], more: list[str]) -> list[str]:
    answers = sorted(
        outcome for outcome in counted if outcome.endswith("xx") or outcome == "no answer"
    )
    rows = ["requests", *more, *(f"{outcome}" for outcome in answers), "forged", "internal errors"]
    table = [row_of([name, f"{counted[name]:,}"]) for name in rows]
    return ["| | count |", "|---|---|", *table]


if __name__ == "__main__":
    main()
