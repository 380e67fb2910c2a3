"""Ray Serve; how requests come in (its own proxy, or HAProxy) is said by its environment."""

import signal
import sys
import tempfile

import ray
from booster import load
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=128)
class House:
    def __init__(self):
        self.model = load()

    async def __call__(self, request: Request) -> Response:
        row = (await request.body()).split(b",")
        return Response(str(self.model([row])[0]), media_type="text/csv")


if __name__ == "__main__":
    quiet = {"enable_access_log": False}
    ray.init(
        address="local",
        include_dashboard=False,
        _temp_dir=tempfile.gettempdir(),
        object_store_memory=200 * 2**20,
        log_to_driver=False,
    )
    serve.start(http_options={"port": int(sys.argv[1])}, logging_config=quiet)
    serve.run(House.bind(), route_prefix="/", logging_config=quiet)
    signal.sigwait({signal.SIGTERM})
    ray.shutdown()
