"""The table of models."""

from sagehen.frame.named_records import NamedTable, table_of_definitions
from sagehen.services.sagemaker.hosting.records import ModelRecord

__all__ = ["MODELS", "delete", "get", "insert", "list_page"]

MODELS = NamedTable(table_of_definitions("models"), ModelRecord)

insert = MODELS.insert
get = MODELS.get
delete = MODELS.delete
list_page = MODELS.list_page
