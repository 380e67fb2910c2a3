"""The producer's side. It keeps no track of results: that would cost it a subscription a task."""

from celery import Celery
from queue_client import BROKER, Send, run


def sender(threads: int) -> Send:
    app = Celery("sender", broker=BROKER)
    app.conf.broker_pool_limit = threads
    return lambda text: app.send_task("echo", args=(text,))


if __name__ == "__main__":
    run(sender)
