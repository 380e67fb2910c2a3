"""Settings as processes are handed them: the same values, without what checks them."""

import io
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from pydantic import SecretStr

from sagehen.base.pickled_settings import pickle_settings, unpickle_settings
from sagehen.base.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        port=12345,
        object_store_options={"region": "x"},
        smtp_password=SecretStr("hush"),
        inference_service={"s3_bucket": "bucket", "stage": "prod"},
    )


def test_every_setting_and_what_is_derived_from_them_is_the_same(settings: Settings) -> None:
    taken = unpickle_settings(io.BytesIO(pickle_settings(settings)))
    for name in (*Settings.model_fields, "state_url", "gateway_count", "running_jobs"):
        assert getattr(taken, name) == getattr(settings, name), name
    assert taken.smtp_password.get_secret_value() == "hush"
    assert taken.inference_service.is_on


def test_they_are_frozen_and_know_no_others(settings: Settings) -> None:
    taken = unpickle_settings(io.BytesIO(pickle_settings(settings)))
    with pytest.raises(AttributeError, match="port"):
        taken.port = 1
    with pytest.raises(AttributeError, match="no setting prot"):
        attrgetter("prot")(taken)


@pytest.mark.parametrize(
    ("role", "without"),
    [
        ("gateway", {"pydantic", "sqlalchemy", "obstore", "starlette", "awscrt"}),
        ("agent", {"pydantic", "sqlalchemy", "obstore", "botocore", "awscrt"}),
        ("control", {"obstore", "rich", "typer", "alembic", "cryptography", "awscrt", "numpy"}),
    ],
)
def test_a_role_imports_nothing_heavy_that_it_does_not_need(role: str, without: set[str]) -> None:
    """Each of these takes megabytes and a part of the start."""
    program = f"import sys, sagehen.app.roles.{role}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert without.isdisjoint(done.stdout.split())


def test_what_pydantic_makes_is_made_when_it_is_asked_for(settings: Settings) -> None:
    program = (
        "import sys; from sagehen.base.pickled_settings import unpickle_settings; "
        "taken = unpickle_settings(sys.stdin.buffer); taken.port; "
        "print('pydantic' in sys.modules); taken.inference_service; "
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle_settings(settings),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"False\nTrue\n"


def test_settings_are_handed_on_by_who_got_them(settings: Settings) -> None:
    taken = unpickle_settings(io.BytesIO(pickle_settings(settings)))
    assert taken.inference_service == settings.inference_service
    again = unpickle_settings(io.BytesIO(pickle_settings(taken)))
    assert (again.port, again.home) == (settings.port, settings.home)
    assert again.inference_service == settings.inference_service
