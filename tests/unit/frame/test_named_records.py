"""Models, endpoint configs and endpoints: looked up by name in any case, listed in pages."""

import msgspec
import pytest

from sagehen.base.errors import AlreadyExists, Invalid
from sagehen.frame.container_specs import ContainerSpec
from sagehen.frame.named_records import ListQuery
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointConfigRecord,
    EndpointRecord,
    EndpointStatus,
    ModelRecord,
    VariantPlan,
)
from sagehen.state.database import Database


def model(name: str = "Model", created_at: float = 0.5) -> ModelRecord:
    definition = {"ModelName": name, "PrimaryContainer": {"Environment": {"K": "\x00ü"}}}
    return ModelRecord(name=name, arn=f"arn:{name}", created_at=created_at, definition=definition)


def endpoint(name: str = "End", **fields) -> EndpointRecord:
    container = ContainerSpec(hostname="primary", image="xgboost", environment={"A": "b"})
    variant = VariantPlan(
        name="v", instance_type="ml.m5.large", instance_count=1, weight=0.1, containers=(container,)
    )
    deployment = Deployment(deployment_id="d", config_name="c", variants=(variant,))
    defaults = {
        "arn": f"arn:{name}",
        "created_at": 1.25,
        "modified_at": 2.5,
        "status": EndpointStatus.CREATING,
        "target": deployment,
        "last_deployment_config": {"BlueGreenUpdatePolicy": {}},
    }
    return EndpointRecord(name=name, **defaults | fields)


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (models, model()),
        (
            endpoint_configs,
            EndpointConfigRecord(name="C", arn="a", created_at=1, definition={"x": [1.5, None]}),
        ),
        (endpoints, endpoint()),
    ],
)
def test_a_record_comes_back_as_it_was(database: Database, table, record) -> None:
    with database.write() as connection:
        table.insert(connection, record)
    with database.read() as connection:
        assert table.get(connection, record.name.upper()) == record
        assert table.get(connection, "other") is None
    with database.write() as connection:
        assert table.delete(connection, record.name.lower())
        assert not table.delete(connection, record.name)
        assert table.get(connection, record.name) is None


def test_a_name_is_taken_whatever_its_case(database: Database) -> None:
    with database.write() as connection:
        models.insert(connection, model("Same"))
        with pytest.raises(AlreadyExists):
            models.insert(connection, model("sAME"))
        # The transaction is still of use.
        assert models.get(connection, "same") == model("Same")


def test_update_of_an_endpoint(database: Database) -> None:
    changed = msgspec.structs.replace(
        endpoint(), status=EndpointStatus.IN_SERVICE, current=endpoint().target, target=None
    )
    with database.write() as connection:
        assert not endpoints.update(connection, endpoint())
        endpoints.insert(connection, endpoint())
        assert endpoints.get_for_update(connection, "end") == endpoint()
        assert endpoints.update(connection, changed)
    with database.read() as connection:
        assert endpoints.all(connection) == [changed]


def test_what_raises_is_undone(database: Database) -> None:
    def fail() -> None:
        with database.write() as connection:
            models.insert(connection, model())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with database.read() as connection:
        assert models.get(connection, "model") is None


def test_a_read_sees_one_state(database: Database) -> None:
    with database.read() as reading:
        assert models.get(reading, "model") is None
        with database.write() as writing:
            models.insert(writing, model())
        assert models.get(reading, "model") is None


def names(database: Database, **query) -> list[list[str]]:
    """The names on each page, following the tokens."""
    pages, token = [], None
    with database.read() as connection:
        while True:
            records, token = endpoints.list_page(
                connection, ListQuery(**{"limit": 2, "token": token, **query})
            )
            pages.append([record.name for record in records])
            if token is None:
                return pages


@pytest.fixture
def five(database: Database) -> Database:
    """Created at 1, 1, 1, 2, 3; modified ten later; b and e are in service."""
    with database.write() as connection:
        for name, created_at in (("C", 1), ("a", 1), ("b", 1), ("d", 2), ("e-e", 3)):
            status = EndpointStatus.IN_SERVICE if name in ("b", "e-e") else EndpointStatus.FAILED
            record = endpoint(
                name, created_at=created_at, modified_at=created_at + 10, status=status
            )
            endpoints.insert(connection, record)
    return database


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ({}, [["e-e", "d"], ["C", "b"], ["a"]]),
        ({"descending": False}, [["a", "b"], ["C", "d"], ["e-e"]]),
        ({"sort_column": "name", "descending": False}, [["a", "b"], ["C", "d"], ["e-e"]]),
        ({"sort_column": "name"}, [["e-e", "d"], ["C", "b"], ["a"]]),
        ({"sort_column": "status", "descending": False}, [["a", "C"], ["d", "b"], ["e-e"]]),
        ({"limit": 5}, [["e-e", "d", "C", "b", "a"]]),
        ({"name_contains": "c"}, [["C"]]),
        ({"name_contains": "_"}, [[]]),
        ({"name_contains": "%"}, [[]]),
        ({"created_before": 2}, [["C", "b"], ["a"]]),
        ({"created_after": 2}, [["e-e", "d"]]),
        ({"modified_before": 12}, [["C", "b"], ["a"]]),
        ({"modified_after": 12}, [["e-e"]]),
        ({"status": "InService"}, [["e-e", "b"]]),
    ],
)
def test_pages(five: Database, query, pages) -> None:
    assert names(five, **query) == pages


def test_rows_that_come_and_go_between_pages_shift_nothing(five: Database) -> None:
    with five.write() as connection:
        first, token = endpoints.list_page(connection, ListQuery(limit=2))
        endpoints.delete(connection, first[0].name)
        endpoints.delete(connection, first[1].name)
        endpoints.insert(connection, endpoint("new", created_at=9))
        second, _ = endpoints.list_page(connection, ListQuery(limit=2, token=token))
    assert [record.name for record in second] == ["C", "b"]


@pytest.mark.parametrize("bad", ["", "%%%", "e30=", "WzFd", "ü", "a" * 9000])
def test_a_token_of_nobody(five: Database, bad: str) -> None:
    with five.read() as connection, pytest.raises(Invalid, match="pagination token"):
        endpoints.list_page(connection, ListQuery(limit=1, token=bad))


@pytest.mark.parametrize("other", [{"sort_column": "name"}, {"descending": False}])
def test_a_token_of_another_order(five: Database, other) -> None:
    with five.read() as connection:
        _, token = endpoints.list_page(connection, ListQuery(limit=1))
        with pytest.raises(Invalid, match="another order"):
            endpoints.list_page(connection, ListQuery(limit=1, token=token, **other))
