"""The client of a task queue that is asked by a library: what load.py is to a server.

    python client.py enqueue THREADS SECONDS TEXTS.json
    python client.py through THREADS COUNT TEXTS.json

The first puts tasks into the queue, each thread as fast as it is told that one is in. The second
puts in so many and waits until the results of all can be read in Redis. Prints a line of JSON.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

from load import Tally, summary
from redis import Redis

BROKER = os.environ["BENCHMARK_BROKER"]
RESULTS = os.environ["BENCHMARK_RESULTS"]
LONGEST_SECONDS = 120
LOOK_SECONDS = 0.02

Send = Callable[[str], object]


def run(make_sender: Callable[[int], Send]) -> None:
    """`make_sender` gets the number of threads, and gives what puts a task into the queue."""
    what, threads, amount, file = sys.argv[1:]
    texts, send = json.loads(Path(file).read_text()), make_sender(int(threads))
    if what == "enqueue":
        send(texts[0])  # that makes the connections
        found = enqueue(send, cycle(texts), int(threads), float(amount))
    else:
        found = through(send, list(islice(cycle(texts), int(amount))), int(threads))
    print(json.dumps(found))


def enqueue(
    send: Send, texts: Iterator[str], threads: int, seconds: float = LONGEST_SECONDS
) -> dict[str, float]:
    """Prints a line like load.py's, when the texts or the time have ended."""
    tally, taking = Tally(), threading.Lock()
    start = time.perf_counter()

    def work() -> None:
        while (began := time.perf_counter()) < start + seconds:
            with taking:
                text = next(texts, None)
            if text is None:
                return
            send(text)
            tally.milliseconds.append((time.perf_counter() - began) * 1000)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return summary(tally, time.perf_counter() - start)


def through(send: Send, texts: list[str], threads: int) -> dict[str, float]:
    results = Redis.from_url(RESULTS)
    results.flushdb()
    # That makes the connections, and shows that somebody works.
    send(texts[0])
    wait_for(results, 1, time.perf_counter() + LONGEST_SECONDS)
    results.flushdb()
    start = time.perf_counter()
    enqueue(send, iter(texts), threads)
    wait_for(results, len(texts), start + LONGEST_SECONDS)
    elapsed = time.perf_counter() - start
    kept = [json.loads(value) for value in results.mget(results.keys())]
    if Counter(one["result"] for one in kept) != Counter(texts):
        sys.exit("The results are not what was sent.")
    return {"requests_per_second": len(texts) / elapsed}


def wait_for(results: Redis, count: int, deadline: float) -> None:
    while (found := results.dbsize()) < count:
        if time.perf_counter() > deadline:
            sys.exit(f"{found} of {count} results in {LONGEST_SECONDS} s.")
        time.sleep(LOOK_SECONDS)
