"""Models and endpoint configs: named, kept as they were given, tagged."""

from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.listing import as_time, read_page
from sagehen.api.refusals import existing, missing
from sagehen.domain.records import DefinedRecord, EndpointConfigRecord, ModelRecord
from sagehen.errors import AlreadyExists
from sagehen.store import endpoint_configs, models, tags
from sagehen.store.named import Named

__all__ = ["ENDPOINT_CONFIGS", "MODELS", "Definitions"]

Record = TypeVar("Record", bound=DefinedRecord)


class Definitions(Generic[Record]):
    """One kind of them.

    Args:
        said: what errors call one.
        resource: what its ARN calls it.
        prefix: of its members, as in `ModelName` and `Models`.
    """

    def __init__(self, records: Named[Record], said: str, resource: str, prefix: str) -> None:
        self._records = records
        self._said = said
        self._resource = resource
        self._prefix = prefix

    def insert(
        self,
        call: Call,
        connection: Connection,
        params: dict[str, Any],
        given_tags: dict[str, str],
    ) -> dict[str, Any]:
        """Store what a Create operation was given; its answer. Raises AwsError."""
        name = params[f"{self._prefix}Name"]
        record = self._records.kind(
            name=name,
            arn=self._arn(call, name),
            created_at=call.clock.now(),
            definition={key: value for key, value in params.items() if key != "Tags"},
        )
        try:
            self._records.insert(connection, record)
        except AlreadyExists as error:
            raise existing(self._said, record.arn) from error
        tags.put(connection, record.arn, given_tags)
        return {f"{self._prefix}Arn": record.arn}

    def get(self, call: Call, connection: Connection, name: str) -> Record:
        """The one of that name. Raises AwsError where there is none."""
        record = self._records.get(connection, name)
        if record is None:
            raise missing(self._said, self._arn(call, name))
        return record

    def page(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """What a List operation answers."""
        return read_page(call, params, self._records.list_page, f"{self._prefix}s", self.summary)

    def delete(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Drop one and its tags. Endpoints that use it are not touched: they have a copy."""
        name = params[f"{self._prefix}Name"]
        arn = self._arn(call, name)
        with call.database.write() as connection:
            if not self._records.delete(connection, name):
                raise missing(self._said, arn)
            tags.drop(connection, arn)
        return {}

    def summary(self, record: Record) -> dict[str, Any]:
        """The members that say which it is."""
        return {
            f"{self._prefix}Name": record.name,
            f"{self._prefix}Arn": record.arn,
            "CreationTime": as_time(record.created_at),
        }

    def _arn(self, call: Call, name: str) -> str:
        return call.arns.sagemaker(self._resource, name)


MODELS: Definitions[ModelRecord] = Definitions(models.MODELS, "model", "model", "Model")
ENDPOINT_CONFIGS: Definitions[EndpointConfigRecord] = Definitions(
    endpoint_configs.ENDPOINT_CONFIGS, "endpoint configuration", "endpoint-config", "EndpointConfig"
)
