"""Ray Serve's task consumer, which is in alpha."""

import signal
import tempfile

import ray
from queue_of_tasks import CONFIG
from ray import serve
from ray.serve.task_consumer import task_consumer, task_handler


@serve.deployment(max_ongoing_requests=64)
@task_consumer(task_processor_config=CONFIG)
class Echo:
    @task_handler(name="echo")
    def echo(self, text: str) -> str:
        return text


if __name__ == "__main__":
    ray.init(
        address="local",
        include_dashboard=False,
        _temp_dir=tempfile.gettempdir(),
        object_store_memory=200 * 2**20,
        log_to_driver=False,
    )
    serve.run(Echo.bind(), route_prefix=None)
    signal.sigwait({signal.SIGTERM})
    ray.shutdown()
