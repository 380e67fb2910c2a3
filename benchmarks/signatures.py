"""The cost of checking one invocation's signature: Sagehen's way next to botocore's.

    python3 benchmarks/signatures.py [--seconds 5] [--save]

In one process, without a server. botocore has no check of its own: it signs the same request again,
as a server that used it would have to.
"""

import hashlib
import time
from collections.abc import Callable

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from frame import heading, keep, options, row_of
from machine import describe_machine

from sagehen.base.clock import SYSTEM
from sagehen.wire.http import Request
from sagehen.wire.signatures.sigv4 import Verifier

KEY, SECRET, REGION = "AKSHBENCHMARK", "a-secret", "us-east-1"
PATH = "/endpoints/house/invocations"
BODY = b"1994,3188,5,1.5,1.62,3"
ROUND = 200
"""Calls between two looks at the clock."""


def main() -> None:
    parser = options(__doc__, seconds=5)
    arguments = parser.parse_args()
    request = signed()
    verifier = Verifier({KEY: SECRET}, SYSTEM, REGION)

    def ours() -> None:
        verifier.verify(request, hashlib.sha256(BODY).hexdigest(), service="sagemaker")

    sides = {
        "Sagehen, the body's digest included": microseconds(ours, arguments.seconds),
        "botocore, signing it again": microseconds(signed, arguments.seconds),
    }
    lines = [*heading("Cost of a signature"), *describe_machine(), ""]
    lines += ["| side | microseconds a request |", "|---|---|"]
    lines += [row_of([name, f"{cost:.1f}"]) for name, cost in sides.items()]
    report = "\n".join([*lines, ""])
    print(report)
    if arguments.save:
        keep(report, "signatures")


def signed() -> Request:
    """An invocation as boto3 sends it."""
    request = AWSRequest("POST", f"http://127.0.0.1:9000{PATH}", {"Content-Type": "text/csv"}, BODY)
    SigV4Auth(Credentials(KEY, SECRET), "sagemaker", REGION).add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request("POST", PATH, "", {"host": "127.0.0.1:9000", **headers}, BODY)


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """The least a round took: what else the machine does only adds to it."""
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(ROUND):
            call()
        least = min(least, time.perf_counter() - start)
    return least / ROUND * 1e6


if __name__ == "__main__":
    main()
