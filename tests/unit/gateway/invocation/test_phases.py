"""The tables of phases: every allowed move is made, every other one is refused."""

import pytest

from sagehen.gateway.invocation.invocation import Invocation
from sagehen.gateway.invocation.phases import (
    COPY_MOVES,
    DONE,
    IDLE,
    INVOCATION_MOVES,
    PLACING,
    RECEIVING,
    RUN_MOVES,
    Phase,
    Phased,
    PhaseError,
)
from sagehen.gateway.invocation.pipeline import PipelineRun
from sagehen.gateway.invocation.streamed import StreamedInvocation
from sagehen.gateway.routing.shadow import _Copy

MACHINES = {
    Invocation: (INVOCATION_MOVES, RECEIVING),
    StreamedInvocation: (INVOCATION_MOVES, RECEIVING),
    PipelineRun: (RUN_MOVES, IDLE),
    _Copy: (COPY_MOVES, PLACING),
}

machines = pytest.mark.parametrize("phased", MACHINES)


def in_phase(phased: type[Phased], phase: Phase) -> Phased:
    request = phased.__new__(phased)
    request.phase = phase
    return request


@machines
def test_every_allowed_move_is_made_and_every_other_refused(phased):
    moves, _ = MACHINES[phased]
    for phase, followers in moves.items():
        for follower in Phase:
            request = in_phase(phased, phase)
            if follower in followers:
                request._move(follower)
                assert request.phase is follower
            else:
                with pytest.raises(PhaseError, match=f"{phase.name} cannot be.* {follower.name}"):
                    request._move(follower)
                assert request.phase is phase


@machines
def test_every_phase_can_be_reached_and_ended_and_the_end_is_final(phased):
    moves, first = MACHINES[phased]
    reached, new = set(), {first}
    while new:
        reached |= new
        new = {follower for phase in new for follower in moves[phase]} - reached
    assert reached == moves.keys()
    assert all(DONE in followers for phase, followers in moves.items() if phase is not DONE)
    assert moves[DONE] == frozenset()
