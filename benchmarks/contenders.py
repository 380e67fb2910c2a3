"""The compared servers: Sagehen, and its peers as they come and in their best mode."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import peer_servers as peers
from sides import Side, fastapi, sagehen


@dataclass(frozen=True)
class Contender:
    """A server in one of its modes."""

    key: str
    """The name for --only; for a peer also its folder in peers/."""
    name: str
    package: str
    start: Callable[[Path, Path, Path], AbstractContextManager[Side]]
    """Gets the model's file, an empty folder and the cache of environments."""
    mode: str = ""
    """For a framework: "default", or "best" with documented settings."""


def peer(key: str, name: str, plan: peers.Planner, mode: str = "", package: str = "") -> Contender:
    return Contender(key, name, package or key, partial(peers.serve, key, plan), mode)


CONTENDERS = (
    Contender(
        "sagehen",
        "Sagehen (signed, through the gateway)",
        "sagehen",
        lambda model, folder, cache: sagehen(model, folder),
    ),
    Contender(
        "fastapi",
        "FastAPI on uvicorn, 1 worker",
        "fastapi",
        lambda model, folder, cache: fastapi(model, workers=1),
    ),
    Contender(
        "fastapi",
        "FastAPI on uvicorn, 2 workers",
        "fastapi",
        lambda model, folder, cache: fastapi(model, workers=2),
    ),
    peer(
        "triton",
        "Triton (Python backend), dynamic batching",
        peers.triton,
        package="nvidia-pytriton",
    ),
    peer("torchserve", "TorchServe, batching", peers.torchserve),
    peer("litserve", "LitServe", peers.litserve, "default"),
    peer("litserve", "LitServe, fast queue", partial(peers.litserve, fast_queue=True), "best"),
    peer("bentoml", "BentoML", peers.bentoml, "default"),
    peer("bentoml", "BentoML, 2 workers", partial(peers.bentoml, workers=2), "best"),
    peer("mlserver", "MLServer", peers.mlserver, "default"),
    peer("mlserver", "MLServer, one process, batching", peers.mlserver_in_one_process, "best"),
    peer("ray", "Ray Serve", peers.ray_serve, "default"),
    peer("ray", "Ray Serve behind HAProxy", peers.ray_serve_haproxy, "best"),
)
KEYS = tuple(dict.fromkeys(contender.key for contender in CONTENDERS))
