"""Eight agents as processes, and one store: who reads it, also when agents die."""

import asyncio
import os
import tarfile

import pytest

from sagehen.base.cluster_certificates import make_authority
from sagehen.state.migrate import upgrade
from support.agent_processes import AgentProcess, tell_nodes
from support.counting_s3 import CountingS3

NODES = 8
AT_ONCE = 6
INSTANCES = 2
MODEL_BYTES = 20 * 2**20
URL = "s3://models/large.tar.gz"


@pytest.fixture
def store(tmp_path):
    weights = tmp_path / "weights"
    weights.write_bytes(os.urandom(MODEL_BYTES))
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(weights, "weights")
    with CountingS3() as store:
        store.put("models/large.tar.gz", archive)
        yield store


@pytest.fixture
async def agents(store, tmp_path):
    state = tmp_path / "state.db"
    upgrade(f"sqlite:///{state}")
    authority = make_authority()
    made = [
        AgentProcess(
            authority,
            number,
            object_store_url="s3://counted",
            object_store_options=store.options,
            database_url=f"sqlite:///{state}",
        )
        for number in range(NODES)
    ]
    for agent in made:
        agent.start()
    yield made
    for agent in made:
        agent.close()


async def start(agents):
    names = {
        agent: [f"i-{agent.node_id}-{number}" for number in range(INSTANCES)] for agent in agents
    }
    await asyncio.gather(
        *(agent.start_instance(name, URL) for agent in agents for name in names[agent])
    )
    await asyncio.gather(*(agent.is_in_service(*names[agent]) for agent in agents))


async def test_many_nodes_read_the_store_once_and_the_death_of_one_is_survived(store, agents):
    await asyncio.gather(*(agent.is_ready() for agent in agents))
    await tell_nodes(agents, 1)
    await start(agents[:AT_ONCE])
    assert sum(store.reads.values()) == 1, store.reads
    for agent in agents[:AT_ONCE]:
        assert len(list(agent.home.artifacts.glob("*/size"))) == 1
    # The one that read the store is the first to be asked, and dies.
    first = next(agent for agent in agents if "Fetched artifact" not in agent.log.read_text())
    first.kill()
    await start(agents[AT_ONCE:])
    # Its place as the keeper of the entries may be lost with it: then one more reads the store.
    assert sum(store.reads.values()) <= 2
    models = {
        (agent.home.artifacts / name / "model" / "weights").read_bytes()
        for agent in agents
        if agent is not first
        for name in os.listdir(agent.home.artifacts)
        if name != ".fresh"
    }
    assert len(models) == 1
    listed = await asyncio.gather(*(each.client.models() for each in agents if each is not first))
    assert all(URL in each.models for each in listed)
