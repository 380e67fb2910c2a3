"""`/_sagehen/inference-services/…`: services as resources, for `sagehen apply`.

GET    …                  every service: {"services": [as below, …]}
GET    …/{stage}          one service; 404 where there is none
PUT    …/{stage}          make it, or change it; 200 with the service as it is then
DELETE …/{stage}          stop its jobs and take it away; 200, 404 where there is none

A refusal is `{"message": "…"}`: 400 for what cannot be right, 403 for the signature or the token,
409 for the service that sagehen.toml describes, which these paths only show.

The body of PUT is a JSON object of the keys of `[inference_service]`, with the same names, values
and defaults (`base/settings/inference_service.py`); `stage` may be left out. All is replaced: a
key that is not given has its default.

    {"s3_bucket": "my-bucket", "white_list": ["model_a", "model_b"], "limit": 2,
     "role_arn": "arn:aws:iam::000000000000:role/r", "require_api_key": true,
     "profile": "published", "when_full": "refuse", "types": {"model_a": {"image": "…"}}}

A service is shown as

    {"stage": "dev", "path": "/dev/inference", "source": "api",         or "settings"
     "topic_arn": "arn:aws:sns:us-east-1:000000000000:inference-dev",
     "closing": false,                                  it is being deleted
     "given": {…the keys that PUT was given…},
     "settings": {…every key with the value in force…},
     "problem": null,
     "active_jobs": 0, "queued_jobs": 0, "created_at": 1.0, "modified_at": 1.0}

A service whose `given` is not valid any more, by a newer version's rules, has no settings (null)
and a `problem`, a sentence; its own paths answer 503 with that until it is PUT again. A service
that an earlier sagehen.toml described, and this server's settings do not, has a `problem` too: it
takes no new jobs and begins none that wait, and may be PUT or DELETEd.

PUT with what is given already changes nothing. Jobs that run go on as they were made; DELETE stops
them, and their notices still come. The bucket and the topic stay.
"""

from starlette.routing import Route

from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.services.inference_service.services import Services

__all__ = ["service_routes"]

LARGEST_BODY_BYTES = 2**20
_AT = "/_sagehen/inference-services"


def service_routes(services: Services) -> list[Route]:
    """To be served with the other own paths."""

    def get(asked: OwnPathRequest) -> object:
        return services.get(asked.path["stage"])

    def put(asked: OwnPathRequest) -> object:
        return services.put(asked.path["stage"], asked.body)

    def delete(asked: OwnPathRequest) -> object:
        return services.delete(asked.path["stage"])

    acts = {"GET": get, "PUT": put, "DELETE": delete}
    return [
        own_route(_AT, {"GET": lambda _: services.all()}),
        own_route(_AT + "/{stage}", acts, LARGEST_BODY_BYTES),
    ]
