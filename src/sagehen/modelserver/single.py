"""The contract of a container with one model: /ping and /invocations."""

from sagehen.modelserver.contract import Request
from sagehen.modelserver.loading import LoadedModel
from sagehen.modelserver.replies import dying, error, healthy, still_loading

__all__ = ["SingleModel"]


class SingleModel:
    """Answers for one model, which comes when it is loaded."""

    def __init__(self) -> None:
        self.loaded: LoadedModel | None = None

    def handle(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        wanted = _METHODS.get(path)
        if wanted is None:
            request.respond(error(404, "ResourceNotFoundException", f"There is no {path} here."))
        elif request.method != wanted:
            request.respond(error(405, "MethodNotAllowedException", f"{path} takes {wanted} only."))
        elif self.loaded is None:
            request.respond(still_loading())
        elif path == "/ping":
            runner = self.loaded.runner
            request.respond(dying() if runner.stuck else healthy(runner.slots))
        else:
            self.loaded.runner.submit(request)


_METHODS = {"/ping": "GET", "/invocations": "POST"}
