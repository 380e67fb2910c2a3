"""Checkpoints written in every way, and looked at as an attempt that begins would find them."""

import asyncio
import dataclasses
import hashlib
import sys
from pathlib import Path

from sagehen.agent.jobs.context import JobContext, JobPace
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import NotFound
from sagehen.frame.job_specs import CheckpointSpec, JobOutcome, StopRequest
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.records import ListingQuery
from support.jobs import JobsUnderTest, MakeSpec

WRITER = """
import hashlib, os, sys, time
folder = os.environ["SAGEMAKER_BASE_DIR"] + "/checkpoints/"

def parts(step):
    body = [str(step).encode() * 5000 for _ in range(8)]
    return [hashlib.sha256(b"".join(body)).hexdigest().encode()] + body

for step in range(100_000):
    with open(folder + "in-place", "wb", buffering=0) as file:
        for part in parts(step):
            file.write(part)
            time.sleep(0.002)
    with open(folder + "new", "wb") as file:
        file.write(b"".join(parts(step)))
    os.rename(folder + "new", folder + "moved")
    with open(folder + f"step-{step}", "wb") as file:
        file.write(b"".join(parts(step)))
    if step >= 3:
        os.remove(folder + f"step-{step - 3}")
    time.sleep(0.02)  # Else in-place would be whole for two looks in a row by chance only.
"""


def check(objects: ObjectStore) -> set[str]:
    """That all that is there is whole; what there is."""
    found = set()
    for one in objects.list_page("bucket", ListingQuery(prefix="ck/")).objects:
        try:
            with objects.open("bucket", one.key) as opened:
                data = b"".join(opened.chunks())
        except NotFound:
            continue  # It was deleted after it was listed.
        assert hashlib.sha256(data[64:]).hexdigest().encode() == data[:64], one.key
        found.add(one.key.removeprefix("ck/"))
    return found


async def test_no_attempt_ever_finds_half_a_file(
    around: JobContext, make_spec: MakeSpec, objects: ObjectStore, tmp_path: Path
) -> None:
    quick = dataclasses.replace(around, clock=SYSTEM, pace=JobPace(checkpoint_seconds=0.005))
    jobs = JobsUnderTest(quick)
    await jobs.jobs.start()
    (tmp_path / "writer.py").write_text(WRITER)
    spec = make_spec(
        entrypoint=(sys.executable, str(tmp_path / "writer.py")),
        checkpoint=CheckpointSpec(s3_uri="s3://bucket/ck"),
    )
    jobs.jobs.put(spec)
    await jobs.trains()
    ever: set[str] = set()
    async with asyncio.timeout(120):
        while len(ever) < 15 or not {"in-place", "moved"} <= ever:
            ever |= await asyncio.to_thread(check, objects)
            await asyncio.sleep(0.05)  # What was stored stays to be looked at.
    jobs.jobs.stop("j-1", StopRequest(outcome=JobOutcome.INTERRUPTED, grace_seconds=0))
    assert (await jobs.ends()).outcome is JobOutcome.INTERRUPTED
    left = await asyncio.to_thread(check, objects)
    assert "moved" in left
    await jobs.jobs.close()
