"""`/_sagehen/inference-services/…`: services as resources, for `sagehen apply`.

GET    …                  every service: {"services": [as below, …]}
GET    …/{stage}          one service; 404 if missing
PUT    …/{stage}          create or change it; 200 with the service
DELETE …/{stage}          stop its jobs and delete it; 200, or 404

Errors are `{"message": "…"}`: 400 for invalid input, 403 for signature or token, 409 for the
service of sagehen.toml, which is read-only here.

PUT takes a JSON object like `[inference_service]` (`base/settings/inference_service.py`) and
replaces everything; missing keys get their defaults, and `stage` may be omitted.

A service is shown as

    {"stage": "dev", "path": "/dev/inference", "source": "api",         or "settings"
     "topic_arn": "arn:aws:sns:us-east-1:000000000000:inference-dev",
     "closing": false,                                  it is being deleted
     "given": {…the keys of the last PUT…},
     "settings": {…every key with the value in force…},
     "problem": null,
     "active_jobs": 0, "queued_jobs": 0, "created_at": 1.0, "modified_at": 1.0}

If a newer version rejects `given`, `settings` is null, `problem` says why, and the service's paths
answer 503. A service of an earlier sagehen.toml has a `problem` too: it takes and begins no jobs,
and may be PUT or DELETEd.

Running jobs keep their definition; DELETE stops them, and their notices are still sent. The bucket
and the topic stay.
"""

from starlette.routing import Route

from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.services.inference_service.services import Services

__all__ = ["service_routes"]

LARGEST_BODY_BYTES = 2**20
_AT = "/_sagehen/inference-services"


def service_routes(services: Services) -> list[Route]:
    def get(request: OwnPathRequest) -> object:
        return services.get(request.path["stage"])

    def put(request: OwnPathRequest) -> object:
        return services.put(request.path["stage"], request.body)

    def delete(request: OwnPathRequest) -> object:
        return services.delete(request.path["stage"])

    acts = {"GET": get, "PUT": put, "DELETE": delete}
    return [
        own_route(_AT, {"GET": lambda _: services.all()}),
        own_route(_AT + "/{stage}", acts, LARGEST_BODY_BYTES),
    ]
