"""The table of endpoint configs."""

from sagehen.frame.named_records import NamedTable, table_of_definitions
from sagehen.services.sagemaker.hosting.records import EndpointConfigRecord

__all__ = ["ENDPOINT_CONFIGS", "delete", "get", "insert", "list_page"]

ENDPOINT_CONFIGS = NamedTable(table_of_definitions("endpoint_configs"), EndpointConfigRecord)

insert = ENDPOINT_CONFIGS.insert
get = ENDPOINT_CONFIGS.get
delete = ENDPOINT_CONFIGS.delete
list_page = ENDPOINT_CONFIGS.list_page
