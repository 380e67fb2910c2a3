"""Instances: rows by id and by endpoint."""

import msgspec
import pytest

from sagehen.base.errors import AlreadyExists
from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.services.sagemaker.hosting import instance_store as instances
from sagehen.services.sagemaker.hosting.records import InstanceRecord
from sagehen.state.database import Database


def instance(instance_id: str, endpoint_name: str = "End") -> InstanceRecord:
    spec = InstanceSpec(
        instance_id=instance_id,
        endpoint_name=endpoint_name,
        variant_name="v",
        instance_type="ml.m5.large",
        containers=(ContainerSpec(hostname="primary", image="xgboost"),),
    )
    return InstanceRecord(
        instance_id=instance_id,
        endpoint_name=endpoint_name,
        deployment_id="d",
        variant_name="v",
        spec=spec,
    )


def test_life_of_an_instance(database: Database) -> None:
    with database.write() as connection:
        for one in (instance("2"), instance("1"), instance("3", "Other")):
            instances.insert(connection, one)
        with pytest.raises(AlreadyExists):
            instances.insert(connection, instance("1"))
    moved = msgspec.structs.replace(
        instance("1"), state=InstanceState.IN_SERVICE, address="unix:/a", stop_at=1.5
    )
    with database.write() as connection:
        assert instances.update(connection, moved)
        assert not instances.update(connection, instance("9"))
    with database.read() as connection:
        assert instances.of_endpoint(connection, "End") == [moved, instance("2")]
        assert instances.all(connection) == [moved, instance("2"), instance("3", "Other")]
    with database.write() as connection:
        assert instances.delete(connection, "1")
        assert not instances.delete(connection, "1")
        assert instances.of_endpoint(connection, "End") == [instance("2")]
