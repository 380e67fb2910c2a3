"""A Ray cluster in a process of its own: `python ray_cluster.py COUNT CPUS` prints its address, and
ends with its standard input. For each line on it, it prints the placement groups as JSON."""

import json
import os
import sys

os.environ.update(
    RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0"
)


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster
    from ray.util import placement_group_table

    count, cpus = map(int, sys.argv[1:])
    cluster = Cluster()
    for number in range(count):
        head = {"include_dashboard": False} if number == 0 else {}
        host = f"127.0.0.{number + 22}"
        cluster.add_node(node_ip_address=host, num_cpus=cpus, memory=64 * 2**30, **head)
    ray.init(address=cluster.address, _node_ip_address="127.0.0.22", log_to_driver=False)
    hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        groups = {
            group["name"].partition("/")[2].partition("@")[0]: (
                group["state"],
                *(hosts.get(place, "") for place in group["bundles_to_node_id"].values()),
            )
            for group in placement_group_table().values()
            if group["state"] != "REMOVED"
        }
        sys.stdout.write(json.dumps(groups) + "\n")
        sys.stdout.flush()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
