"""The models: one row each."""

from sagehen.domain.records import ModelRecord
from sagehen.store.named import Named, table_of_definitions

__all__ = ["MODELS", "delete", "get", "insert", "list_page"]

MODELS = Named(table_of_definitions("models"), ModelRecord)

insert = MODELS.insert
get = MODELS.get
delete = MODELS.delete
list_page = MODELS.list_page
