"""A sweep that fails, for whatever reason, is not the last."""

import asyncio
from contextlib import suppress

import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.leased_loop import keep_sweeping
from support.clock import HandClock


@pytest.mark.parametrize("fault", [Unavailable("The state is busy."), KeyError("a mistake")])
async def test_it_goes_on(caplog, fault):
    clock, at = HandClock(), []

    async def sweep():
        at.append(clock.now())
        raise fault if len(at) < 3 else asyncio.CancelledError

    with suppress(asyncio.CancelledError):
        await keep_sweeping(sweep, 30, clock, "shelves")
    assert at == [0, 30, 60]
    assert caplog.text.count("shelves") == 2
    assert ("Traceback" in caplog.text) is isinstance(fault, KeyError)
