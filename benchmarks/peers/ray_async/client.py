"""The producer's side: Ray Serve's own, without an HTTP server before it, which would cost more."""

from queue_client import Send, run
from queue_of_tasks import CONFIG
from ray.serve.task_consumer import instantiate_adapter_from_config


def sender(threads: int) -> Send:
    adapter = instantiate_adapter_from_config(CONFIG)
    return lambda text: adapter.enqueue_task_sync("echo", args=[text])


if __name__ == "__main__":
    run(sender)
