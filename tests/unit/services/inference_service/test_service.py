"""Services as they are stored: their settings, and when they are paused."""

import pytest

from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import service_store
from sagehen.services.inference_service.records import ServiceRecord, ServiceSource
from sagehen.services.inference_service.service import (
    Service,
    ServiceInvalid,
    load_service,
    load_valid_service,
    undeclared_reason,
)

GIVEN = {"stage": "dev", "s3_bucket": "bucket", "white_list": "model_a", "limit": 3}


def record(source=ServiceSource.API, **given):
    return ServiceRecord(
        stage="dev", source=source, given={**GIVEN, **given}, created_at=1.0, modified_at=1.0
    )


@pytest.fixture
def stored(database):
    def store(service):
        with database.write() as connection:
            service_store.insert(connection, service)
        return database

    return store


def test_settings_are_the_given_ones_with_defaults(stored):
    with stored(record()).read() as connection:
        service = load_service(connection, "dev")
        assert load_service(connection, "other") is None
    assert (service.stage, service.settings.limit) == ("dev", 3)
    assert service.settings.max_body_bytes == InferenceServiceSettings().max_body_bytes


def test_the_topic_is_named_after_the_stage_unless_it_is_given():
    arns = ArnMaker("000000000000", "us-east-1")
    settings = InferenceServiceSettings()
    assert Service(record(), settings).topic_arn(arns).endswith(":inference-dev")
    assert Service(record(topic="ends"), settings).topic_arn(arns).endswith(":ends")


def test_settings_that_this_version_rejects_are_named(stored, caplog):
    with stored(record(limit=-1)).read() as connection:
        with pytest.raises(ServiceInvalid, match="limit: "):
            load_service(connection, "dev")
        assert load_valid_service(connection, "dev") is None
    assert "are not valid any more" in caplog.text


@pytest.mark.parametrize(
    ("source", "own", "is_paused"),
    [
        (ServiceSource.API, {}, False),
        (ServiceSource.SETTINGS, {}, True),
        (ServiceSource.SETTINGS, GIVEN, False),
        (ServiceSource.SETTINGS, {**GIVEN, "stage": "prod"}, True),
    ],
)
def test_a_service_of_settings_that_are_gone_is_paused(source, own, is_paused):
    reason = undeclared_reason(record(source), InferenceServiceSettings.model_validate(own))
    assert (reason is not None) == is_paused
    if reason is not None:
        assert "sagehen inference-service delete dev" in reason
