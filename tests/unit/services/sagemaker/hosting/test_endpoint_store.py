"""The table of endpoints."""

from sagehen.services.sagemaker.hosting import endpoint_store as store
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from support.fleet import NAME, deployment, endpoint


def test_an_endpoint_comes_back_as_it_was(any_database: Database) -> None:
    record = endpoint(
        EndpointStatus.UPDATING,
        current=deployment("d1", 1),
        target=deployment("d2", 1, 2, shadow=1),
        failure_reason="no",
        last_deployment_config={"a": 1},
    )
    with any_database.write() as connection:
        store.insert(connection, record)
        assert store.get_for_update(connection, NAME.upper()) == record
        assert store.all(connection) == [record]


def test_only_an_endpoint_that_serves_has_a_first_variant(any_database: Database) -> None:
    with any_database.write() as connection:
        assert store.first_variant(connection, NAME) is None
        store.insert(connection, endpoint(EndpointStatus.CREATING, target=deployment("d1", 1)))
        assert store.first_variant(connection, NAME) is None
        serving = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1, 1))
        assert store.update(connection, serving)
        assert store.first_variant(connection, NAME) == "a"
