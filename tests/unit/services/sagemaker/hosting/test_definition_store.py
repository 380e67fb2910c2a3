"""The tables of models and endpoint configs hold what was given, each in its own."""

import pytest

from sagehen.base.errors import AlreadyExists
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.hosting.records import EndpointConfigRecord, ModelRecord
from sagehen.state.database import Database


def test_a_model_and_a_config_may_have_one_name(any_database: Database) -> None:
    members = {"name": "One", "arn": "arn", "created_at": 1.0}
    model = ModelRecord(definition={"Containers": []}, **members)
    config = EndpointConfigRecord(definition={"ProductionVariants": []}, **members)
    with any_database.write() as connection:
        models.insert(connection, model)
        endpoint_configs.insert(connection, config)
        assert models.get(connection, "oNE") == model
        assert endpoint_configs.get(connection, "one") == config
        with pytest.raises(AlreadyExists):
            models.insert(connection, model)
        assert models.delete(connection, "ONE")
        assert models.get(connection, "one") is None
        assert endpoint_configs.get(connection, "one") == config
