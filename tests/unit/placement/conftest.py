import pytest

from support.fleet_cluster import Cluster


@pytest.fixture
async def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    await cluster.fleet.stand_down()
    assert all(agent.closed for agent in cluster.agents.values())
