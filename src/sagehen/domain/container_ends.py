"""Why a container of an instance has ended: a file in the home's run folder, written by the agent
when it sees the end, read by gateways for the callers whose requests ended with it.
"""

from pathlib import Path

__all__ = ["read_end", "write_end"]


def write_end(path: Path, run_id: str, reason: str | None) -> None:
    """Note the end of the run of that id; with no reason where nothing is known. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(f"{run_id}\n{reason or ''}")
    draft.replace(path)


def read_end(path: Path, run_id: str) -> str | None:
    """The reason, empty where nothing is known; None: that run's end is not noted."""
    try:
        noted, _, reason = path.read_text(errors="replace").partition("\n")
    except OSError:
        return None
    return reason if noted == run_id else None
