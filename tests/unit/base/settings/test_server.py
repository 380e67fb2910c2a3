"""Values that follow from the server's settings."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from sagehen.base.settings import Settings


def test_the_state_is_in_the_home_unless_a_url_says_otherwise() -> None:
    assert Settings(home=Path("/h?a/b")).state_url == "sqlite:////h%3Fa/b/state.db"
    assert Settings(database_url="postgresql://db/x").state_url == "postgresql://db/x"


def test_gateways_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(gateways=3).gateway_count == 3
    for cores, gateways in ((1, 1), (2, 2), (3, 2), (8, 4)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert Settings().gateway_count == gateways


@pytest.mark.parametrize(
    "values",
    [{"port": 65536}, {"account_id": "1"}, {"public_url": "ftp://x"}, {"log_level": "LOUD"}],
)
def test_bad_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(values)
