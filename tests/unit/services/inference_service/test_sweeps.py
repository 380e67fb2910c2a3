"""The sweep once a minute: every stage in turn; what one raises is for the next time."""

import asyncio
from contextlib import suppress

from sagehen.base.errors import Unavailable
from sagehen.services.inference_service.sweeps import SWEEP_SECONDS, InferenceSweeps
from sagehen.state.group_commit import GroupCommit
from support.clock import HandClock


def test_each_stage_is_swept_again_and_again(database, caplog):
    clock = HandClock()
    seen = []

    def sweep(_, stage):
        seen.append((clock.now(), stage))
        if len(seen) == 1:
            raise Unavailable("The state is busy.")
        if len(seen) == 5:
            raise asyncio.CancelledError
        return 1 if stage == "b" else 0

    sweeps = InferenceSweeps(GroupCommit(database), clock, lambda _: ["a", "b"], sweep)
    with suppress(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(sweeps.run(), 60))
    assert seen[:3] == [(0, "a"), (SWEEP_SECONDS, "a"), (SWEEP_SECONDS, "b")]
    assert "The state is busy." in caplog.text
    assert "Slots were held by jobs that were over." in caplog.text
