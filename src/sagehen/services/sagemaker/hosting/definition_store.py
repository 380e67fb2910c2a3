"""The tables of models and of endpoint configs."""

from sagehen.frame.named_records import NamedTable, table_of_definitions
from sagehen.services.sagemaker.hosting.records import EndpointConfigRecord, ModelRecord

__all__ = ["endpoint_configs", "models"]

models = NamedTable(table_of_definitions("models"), ModelRecord)
endpoint_configs = NamedTable(table_of_definitions("endpoint_configs"), EndpointConfigRecord)
