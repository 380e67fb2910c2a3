"""Leaves a cluster before a node stops: the instances of its endpoints move to others first."""

import asyncio
from collections.abc import Callable

from sagehen.app.commands.control_client import call_server
from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.home import Home

__all__ = ["leave_cluster"]

LOOK_SECONDS = 0.5
LONGEST_AWAY_SECONDS = 8.0
"""in which another control leads, if the last one is gone"""
SHORTEST_CALL_SECONDS = 1.0
STUCK_POLLS = 3
"""one after another, in which no other node has room: what ends just then makes some"""


async def leave_cluster(
    home: Home,
    url: str,
    node_id: str,
    seconds: float,
    clock: Clock,
    report: Callable[[str], None],
) -> None:
    """Waits for at most `seconds`. Jobs are not waited for: they go on from their checkpoints.

    Args:
        url: of a gateway of this node.
        seconds: 0: stop at once.
    """
    if seconds <= 0:
        return
    path = f"cluster/nodes/{node_id}/leave"
    began = heard_at = clock.monotonic()
    has_reported = False
    stuck_polls = 0
    while True:
        now = clock.monotonic()
        # A control that hangs is waited for no longer than one that is gone.
        left = min(heard_at + LONGEST_AWAY_SECONDS, began + seconds) - now
        patience = max(SHORTEST_CALL_SECONDS, left)
        try:
            answer = await asyncio.to_thread(call_server, url, home, path, "PUT", None, patience)
        except Unavailable as error:
            if clock.monotonic() - heard_at >= LONGEST_AWAY_SECONDS:
                report(f"No control answers, so nothing moves to other nodes: {error}")
                return
        except SagehenError as error:
            report(f"Nothing moves to other nodes: {error}")
            return
        else:
            heard_at = clock.monotonic()
            if not answer["instances"] or not answer["can_move"]:
                return
            if not has_reported:
                report(f"Moving {answer['instances']} instances to other nodes first ...")
            has_reported = True
            lack = await asyncio.to_thread(_lack_of_room, url, home, node_id, answer["instances"])
            stuck_polls = stuck_polls + 1 if lack else 0
            if stuck_polls == STUCK_POLLS:
                report(
                    f"No other node has room for {answer['instances']} instances, which end with "
                    f"this server: {lack}."
                )
                return
        if clock.monotonic() - began >= seconds:
            report(
                f"After {seconds:g} s (cluster_leave_seconds), not all instances have moved to "
                "other nodes: `sagehen cluster status` shows what waits there for room."
            )
            return
        await clock.sleep(LOOK_SECONDS)


def _lack_of_room(url: str, home: Home, node_id: str, instances: int) -> str:
    """Returns why none of the node's instances can move; empty where one may, or nobody knows."""
    try:
        answer = call_server(url, home, "cluster", timeout_seconds=LONGEST_AWAY_SECONDS)
    except SagehenError:
        return ""
    if answer.get("may_grow"):
        return ""
    stuck = [node.get("without_room", 0) for node in answer["nodes"] if node["id"] == node_id]
    reasons = [each["reason"] for each in answer["waiting"]]
    return reasons[0] if reasons and sum(stuck) >= instances else ""
