"""What the agent's errors are to callers that know only the base's."""

import pytest

from sagehen.agent.errors import ContainerUnhealthy, ModelNotReady, NoRoom
from sagehen.base.errors import LimitExceeded, Unavailable


@pytest.mark.parametrize("final", [True, False])
def test_an_unhealthy_container_says_whether_another_start_may_help(final: bool) -> None:
    error = ContainerUnhealthy("it ended", final=final)
    assert (str(error), error.final) == ("it ended", final)


def test_callers_that_know_only_the_base_may_retry_or_give_up() -> None:
    assert isinstance(ModelNotReady("loading"), Unavailable)
    assert isinstance(NoRoom("too large"), LimitExceeded)
