"""The process that speaks with Ray, for this machine's control; it starts a local cluster, too."""

import hashlib
import os

from sagehen.app.cluster import load_authority, own_host
from sagehen.app.roles.common import Start, run, serve_on, start_role
from sagehen.base.errors import SettingError
from sagehen.base.extras import require_library
from sagehen.base.home import Home
from sagehen.placement.ray_app import create_ray_app

__all__ = ["namespace_of"]

LOCAL = "local:"
ENVIRONMENT = {
    # A hung node is lost after 4 s, and not after a minute.
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # It counts the memory of all processes, and would kill our actors for what models take.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else Ray writes a token into this user's home, which other clusters then ask for.
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""for nodes that this process starts; variables of the user's own win"""


def namespace_of(home: Home) -> str:
    """Returns the namespace of this cluster's actors and reservations: several clusters of ours may
    use one of Ray's."""
    digest = hashlib.sha256(load_authority(home).certificate_pem).hexdigest()
    return f"sagehen-{digest[:16]}"


async def _main(start: Start) -> None:
    require_library("ray", "Ray", "ray")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Nodes that are started here have homes of their own.
    os.environ.pop("SAGEHEN_HOME", None)
    # Imported late: its environment is read when it is imported.
    from sagehen.placement.ray_nodes import RayNodes, start_local_cluster

    settings, home = start.settings, start.home
    address, host = settings.cluster or "", own_host(settings)
    try:
        if address.startswith(LOCAL):
            address = start_local_cluster(int(address.removeprefix(LOCAL)))
            host = address.rpartition(":")[0]
        # By itself Ray takes the address of the route to the Internet.
        is_unknown = address == "auto" and settings.cluster_host is None
        own = None if host == "127.0.0.1" or is_unknown else host
        nodes = RayNodes(address, namespace_of(home), home.path, own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingError(f"The Ray cluster {settings.cluster} cannot be used: {error}") from error
    try:
        await serve_on(home.ray_socket, create_ray_app(nodes))
    finally:
        nodes.close()


if __name__ == "__main__":
    run(_main(start_role("ray")))
