"""The SageMaker SDK without its slowest habit.

Whenever it looks up a default in its configuration, which is empty, it checks the configuration's
schema anew: some 50 ms, and twenty times for a training job.
"""

import importlib
from types import SimpleNamespace

from jsonschema.validators import validator_for

__all__ = ["check_schema_once"]


def check_schema_once() -> None:
    """Imports the SDK's configuration. Every configuration is still validated."""
    config = importlib.import_module("sagemaker.config.config")
    schema = config.SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA
    validator = validator_for(schema)
    validator.check_schema(schema)
    checked = validator(schema)
    config.jsonschema = SimpleNamespace(  # type: ignore[attr-defined]
        validate=lambda instance, _schema: checked.validate(instance)
    )
