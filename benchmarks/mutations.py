"""Random changes of a request: functions of it, of its operation and of a source of chance."""

import random
import string
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

from support.forging import Base, Sent

__all__ = ["MUTATIONS", "Mutation", "mutated"]

Mutation = Callable[[Sent, Base, random.Random], Sent]

_METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS")
_LETTERS = string.ascii_letters + string.digits + "-_.~!$'()*+,;=:@&%\xa0\xe4"
_SIGNING = ("authorization", "x-amz-date", "x-amz-content-sha256")
_NAMES = (
    "Action",
    "action",
    "%41ction",
    "Version",
    "list-type",
    "acl",
    "%61cl",
    "uploadId",
    "X-Amz-Date",
    "X-Amz-Credential",
    "x-amz-acl",
    "X-Amz-%53ignature",
    "AWSAccessKeyId",
    "Signature",
)


def mutated(
    sent: Sent, base: Base, rng: random.Random, unsigned_only: bool = False
) -> tuple[Sent, list[str]]:
    """The request with one to four changes, and their names."""
    names = []
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        mutation = rng.choice(MUTATIONS)
        if unsigned_only and mutation.__name__.startswith("signature_"):
            continue
        if not sent.headers:
            mutation = header_added
        sent = mutation(sent, base, rng)
        names.append(mutation.__name__)
    return sent, names


# For another thing than was signed


def another_operation(sent: Sent, base: Base, rng: random.Random) -> Sent:
    name, other = base.operation, base.decoy
    return Sent(
        sent.method,
        sent.path.replace(name, other),
        sent.query.replace(f"={name}&", f"={other}&"),
        tuple(
            (
                header,
                value.replace(f".{name}", f".{other}")
                if header.lower() == "x-amz-target"
                else value,
            )
            for header, value in sent.headers
        ),
        sent.body.replace(f"Action={name}&".encode(), f"Action={other}&".encode()),
    )


def another_method(sent: Sent, base: Base, rng: random.Random) -> Sent:
    return replace(
        sent, method=rng.choice([method for method in _METHODS if method != sent.method])
    )


def another_path(sent: Sent, base: Base, rng: random.Random) -> Sent:
    at = rng.randrange(1, len(sent.path) + 1)
    return replace(
        sent, path=f"{sent.path[:at]}{rng.choice(string.ascii_lowercase)}{sent.path[at:]}"
    )


def another_body(sent: Sent, base: Base, rng: random.Random) -> Sent:
    if not sent.body or (base.service == "s3" and sent.query):
        return sent  # Links to S3's objects are good for any body.
    at = rng.randrange(len(sent.body))
    return replace(sent, body=sent.body[:at] + rng.randbytes(1) + sent.body[at:])


def another_value(sent: Sent, base: Base, rng: random.Random) -> Sent:
    """Changes a query parameter, which may be part of the signature."""
    pairs = sent.query.split("&")
    at = rng.randrange(len(pairs))
    if "=" not in pairs[at]:
        return sent
    pairs[at] += rng.choice(string.digits)
    return replace(sent, query="&".join(pairs))


# Of parameters


def parameter_added(sent: Sent, base: Base, rng: random.Random) -> Sent:
    name, value = (
        rng.choice(_NAMES),
        rng.choice((base.decoy, base.operation, "2", "", "ConfirmSubscription")),
    )
    pairs = [*filter(None, sent.query.split("&"))]
    pairs.insert(rng.randrange(len(pairs) + 1), f"{name}={value}" if rng.random() < 0.8 else name)
    return replace(sent, query="&".join(pairs))


def parameter_twice(sent: Sent, base: Base, rng: random.Random) -> Sent:
    pairs = [*filter(None, sent.query.split("&"))]
    if not pairs:
        return sent
    name, _, value = rng.choice(pairs).partition("=")
    name = rng.choice((name, name.lower(), f"%{ord(name[0]):02X}{name[1:]}" if name else name))
    pairs.insert(
        rng.randrange(len(pairs) + 1), f"{name}={rng.choice((value, 'other', base.decoy))}"
    )
    return replace(sent, query="&".join(pairs))


def parameter_removed(sent: Sent, base: Base, rng: random.Random) -> Sent:
    pairs = sent.query.split("&")
    del pairs[rng.randrange(len(pairs))]
    return replace(sent, query="&".join(pairs))


def parameters_shuffled(sent: Sent, base: Base, rng: random.Random) -> Sent:
    pairs = sent.query.split("&")
    rng.shuffle(pairs)
    return replace(sent, query="&".join(pairs))


def query_and_body_swapped(sent: Sent, base: Base, rng: random.Random) -> Sent:
    return replace(sent, query=quote(sent.body, safe="=&%+-_.~"), body=sent.query.encode("latin-1"))


def form_parameter_added(sent: Sent, base: Base, rng: random.Random) -> Sent:
    added = f"{rng.choice(_NAMES)}={rng.choice((base.decoy, base.operation))}".encode()
    return replace(sent, body=rng.choice((sent.body + b"&" + added, added + b"&" + sent.body)))


# Of spellings


def letter_encoded(sent: Sent, base: Base, rng: random.Random) -> Sent:
    where = rng.choice(("path", "query"))
    text: str = getattr(sent, where)
    start = 1 if where == "path" else 0
    if len(text) <= start:
        return sent
    at = rng.randrange(start, len(text))
    encoded = f"{text[:at]}%{ord(text[at]) & 255:02{rng.choice('xX')}}{text[at + 1 :]}"
    return replace(sent, **{where: encoded})


def letter_decoded(sent: Sent, base: Base, rng: random.Random) -> Sent:
    where = rng.choice(("path", "query"))
    text: str = getattr(sent, where)
    at = text.find("%", rng.randrange(len(text) + 1))
    digits = text[at + 1 : at + 3]
    if at < 0 or len(digits) < 2 or not all(digit in string.hexdigits for digit in digits):
        return sent
    letter = chr(int(digits, 16))
    if letter in "?# " or not letter.isprintable():
        return sent
    return replace(sent, **{where: f"{text[:at]}{letter}{text[at + 3 :]}"})


def percent_encoded(sent: Sent, base: Base, rng: random.Random) -> Sent:
    where = rng.choice(("path", "query"))
    return replace(sent, **{where: getattr(sent, where).replace("%", "%25", 1)})


def blanks_and_pluses(sent: Sent, base: Base, rng: random.Random) -> Sent:
    one, other = rng.sample(("+", "%20", "%2B"), 2)
    return replace(sent, query=sent.query.replace(one, other))


def path_respelled(sent: Sent, base: Base, rng: random.Random) -> Sent:
    at = rng.choice([at for at, letter in enumerate(sent.path) if letter == "/"])
    more = rng.choice(
        ("/", "./", "../", "x/../", ";x", "%2F", "%2e%2e/", "_sagehen/", "endpoints/")
    )
    return replace(sent, path=f"{sent.path[: at + 1]}{more}{sent.path[at + 1 :]}")


def path_moved(sent: Sent, base: Base, rng: random.Random) -> Sent:
    moved = (
        "/",
        "//",
        "/endpoints/e/invocations",
        "/endpoints/e/async-invocations",
        "/_sagehen/stacks/a",
    )
    more = (
        "/_sagehen/stacks/b",
        "/dev/inference",
        f"/service/X/operation/{base.decoy}",
        "/bucket/key",
    )
    return replace(sent, path=rng.choice(moved + more))


def letter_changed(sent: Sent, base: Base, rng: random.Random) -> Sent:
    where = rng.choice(("path", "query"))
    text: str = getattr(sent, where)
    start = 1 if where == "path" else 0
    if len(text) <= start:
        return sent
    at = rng.randrange(start, len(text))
    return replace(sent, **{where: text[:at] + rng.choice(_LETTERS) + text[at + 1 :]})


# Of headers


def header_twice(sent: Sent, base: Base, rng: random.Random) -> Sent:
    name, value = rng.choice(sent.headers)
    name = rng.choice((name, name.lower(), name.upper(), name.replace("-", "_")))
    return sent.but((name, rng.choice((value, value.replace(base.operation, base.decoy), ""))))


def header_removed(sent: Sent, base: Base, rng: random.Random) -> Sent:
    return replace(sent, headers=sent.without(rng.choice(sent.headers)[0].lower()))


def header_added(sent: Sent, base: Base, rng: random.Random) -> Sent:
    return sent.but(
        rng.choice(
            (
                ("X-Amz-Target", f"SageMaker.{base.decoy}"),
                ("X-Amz-Target", f"AmazonSQS.{base.decoy}"),
                ("Content-Type", "application/x-www-form-urlencoded"),
                ("Content-Type", "application/x-amz-json-1.1"),
                ("Smithy-Protocol", "rpc-v2-cbor"),
                ("Content-Encoding", "gzip"),
                ("X-HTTP-Method-Override", "DELETE"),
                ("X-Original-URL", "/_sagehen/internal/gateway"),
                ("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"),
                ("X-Amz-Copy-Source", "/bucket/other"),
                ("X-Amz-Date", "20261101T093001Z"),
                ("Date", "Sun, 01 Nov 2026 09:30:00 GMT"),
                ("Authorization", "AWS4-HMAC-SHA256 x"),
            )
        )
    )


def header_respaced(sent: Sent, base: Base, rng: random.Random) -> Sent:
    at = rng.randrange(len(sent.headers))
    name, value = sent.headers[at]
    blank = rng.choice((" ", "\t", "\xa0", "  ", "\x85", ","))
    value = rng.choice((value.replace(" ", blank), value + blank, blank + value))
    return replace(sent, headers=(*sent.headers[:at], (name, value), *sent.headers[at + 1 :]))


def header_changed(sent: Sent, base: Base, rng: random.Random) -> Sent:
    at = rng.randrange(len(sent.headers))
    name, value = sent.headers[at]
    if value:
        where = rng.randrange(len(value))
        value = value[:where] + rng.choice(_LETTERS) + value[where + 1 :]
    return replace(sent, headers=(*sent.headers[:at], (name, value), *sent.headers[at + 1 :]))


# Of signatures


def signature_dropped(sent: Sent, base: Base, rng: random.Random) -> Sent:
    pairs = [
        pair for pair in sent.query.split("&") if not pair.startswith(("X-Amz-", "Signature="))
    ]
    return replace(sent, headers=sent.without(*_SIGNING), query="&".join(pairs))


def signature_part_changed(sent: Sent, base: Base, rng: random.Random) -> Sent:
    one, other = rng.choice(
        (
            ("us-east-1", "eu-west-1"),
            (f"/{base.signing_name}/", f"/{rng.choice(('s3', 'sns', 'sagemaker', 'sts'))}/"),
            ("aws4_request", "aws4_requesu"),
            ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
            ("host;", ""),
            ("SignedHeaders=", "SignedHeaders=accept;"),
            ("Signature=", "Signature=,Signature="),
            (", ", ","),
            ("Credential=", "credential="),
            ("X-Amz-", "X-%41mz-"),
            ("X-Amz-Expires=900", "X-Amz-Expires=9000"),
            ("%2F", "/"),
        )
    )
    headers = tuple(
        (name, value.replace(one, other) if name.lower() == "authorization" else value)
        for name, value in sent.headers
    )
    return replace(sent, headers=headers, query=sent.query.replace(one, other))


MUTATIONS: tuple[Mutation, ...] = (
    another_operation,
    another_method,
    another_path,
    another_body,
    another_value,
    parameter_added,
    parameter_twice,
    parameter_removed,
    parameters_shuffled,
    query_and_body_swapped,
    form_parameter_added,
    letter_encoded,
    letter_decoded,
    percent_encoded,
    blanks_and_pluses,
    path_respelled,
    path_moved,
    letter_changed,
    header_twice,
    header_removed,
    header_added,
    header_respaced,
    header_changed,
    signature_dropped,
    signature_part_changed,
)
