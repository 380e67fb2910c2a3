"""Values that follow from the settings of endpoints and jobs."""

import pytest

from sagehen.base.settings import Settings


def test_jobs_run_one_per_core_and_two_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(max_running_jobs=1).running_jobs == 1
    for cores, jobs in ((1, 2), (2, 2), (16, 16)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert Settings().running_jobs == jobs
