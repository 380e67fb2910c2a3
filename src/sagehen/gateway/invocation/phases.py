"""The phases of an invocation, of a pipeline run, and of a copy for a shadow variant, and which may
follow which. Every move is checked.

An invocation (invocation.py):

    RECEIVING
        │  the request is admitted
        v
     PLACING <────────────────────────────────────┐
      │    │  its model is not known to be loaded │
      │    v                                      │
      │  LOADING ─────────────────────────────────┤ the agent cannot load the model here
      v    v                                      │
    CONNECTING, or PIPELINE ──────────────────────┤ the container provably did not begin,
        │                                         │ or lacks the model
        v                                         │
      SENT ───────────────────────────────────────┤
        │  │  the caller has part of the answer   │
        │  v                                      │
        │ RELAYING                                │
        v  v                                      │
      ANSWERED ───────────────────────────────────┘

    Each phase may be followed by DONE. SENT, RELAYING and the connections of a pipeline break into
    LOST, where the agent is asked for the reason. Once a container of a pipeline has answered, the
    instance stays: LOADING or LOST takes the place of PLACING. CONNECTING is left out where a
    connection is idle. PLACING may be followed by STARTING and that by PLACING, where the variant
    has no instance and calls start one.

A run of a pipeline (pipeline.py); its invocation is in PIPELINE, and at the last container in SENT:

    IDLE ──> CONNECTING ──> SENT ──> ANSWERED ──> CONNECTING, to the next container, or to the same
             one with its model loaded again. Each phase may be followed by DONE.

A copy for a shadow variant (routing/shadow.py):

    PLACING ──> CONNECTING ──> SENT ──> ANSWERED. CONNECTING and ANSWERED are followed by PLACING
             if the container provably did not begin; each phase may be followed by DONE.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import ClassVar

__all__ = [
    "ANSWERED",
    "CONNECTING",
    "COPY_MOVES",
    "DONE",
    "IDLE",
    "INVOCATION_MOVES",
    "LOADING",
    "LOST",
    "PIPELINE",
    "PLACING",
    "RECEIVING",
    "RELAYING",
    "RUN_MOVES",
    "SENT",
    "STARTING",
    "Phase",
    "PhaseError",
    "Phased",
]


class Phase(IntEnum):
    IDLE = 0
    """of a pipeline run: nothing is sent yet"""
    RECEIVING = 1
    """the body is on its way from the client"""
    PLACING = 2
    """waits for a slot of an instance"""
    STARTING = 3
    """waits for the first instance to start"""
    LOADING = 4
    """has a slot; waits for its model"""
    CONNECTING = 5
    """has a slot, and its model; waits for a connection to the container"""
    PIPELINE = 6
    """passes through the earlier containers of a pipeline"""
    SENT = 7
    """the container has the request, and this request the connection"""
    RELAYING = 8
    """as SENT; the caller has part of the answer"""
    ANSWERED = 9
    """the answer is complete, or broke; the connection belongs to others"""
    LOST = 10
    """the connection broke; waits for the agent to know why"""
    DONE = 11
    """everything is released"""


# Bound here, as `Phase.DONE` takes 0.1 µs in Python 3.11, and each request has several phases.
(
    IDLE,
    RECEIVING,
    PLACING,
    STARTING,
    LOADING,
    CONNECTING,
    PIPELINE,
    SENT,
    RELAYING,
    ANSWERED,
    LOST,
    DONE,
) = Phase

Moves = Mapping[Phase, frozenset[Phase]]
"""phases that may follow, by phase"""


def _table(**followers: str) -> Moves:
    """Every phase may be followed by DONE."""
    moves = {
        Phase[phase]: frozenset(Phase[name] for name in (*names.split(), "DONE"))
        for phase, names in followers.items()
    }
    return {**moves, DONE: frozenset()}


INVOCATION_MOVES = _table(
    RECEIVING="PLACING",
    PLACING="STARTING LOADING CONNECTING SENT PIPELINE",
    STARTING="PLACING",
    LOADING="LOADING PLACING CONNECTING SENT PIPELINE LOST",
    CONNECTING="SENT PLACING",
    PIPELINE="SENT PLACING LOADING LOST",
    SENT="RELAYING ANSWERED PLACING LOST",
    RELAYING="ANSWERED LOST",
    ANSWERED="PLACING LOADING LOST",
    LOST="",
)

RUN_MOVES = _table(
    IDLE="CONNECTING SENT",
    CONNECTING="SENT ANSWERED",
    SENT="ANSWERED",
    ANSWERED="CONNECTING SENT",
)

COPY_MOVES = _table(
    PLACING="CONNECTING SENT",
    CONNECTING="SENT PLACING",
    SENT="ANSWERED",
    ANSWERED="PLACING",
)


class PhaseError(RuntimeError):
    """A fault of the gateway: a move that its table does not have."""


class Phased:
    """A request that is always in one phase."""

    __slots__ = ("phase",)

    phase: Phase
    _moves: ClassVar[Moves]

    def _move(self, phase: Phase) -> None:
        """Takes 0.1 µs. Raises PhaseError."""
        if phase not in self._moves[self.phase]:
            name = type(self).__name__
            raise PhaseError(f"{name}: {self.phase.name} cannot be followed by {phase.name}.")
        self.phase = phase
