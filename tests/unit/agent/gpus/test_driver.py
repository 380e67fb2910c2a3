"""The tool here is a small script: its output is what varies."""

import asyncio
import os

import pytest

from sagehen.agent.gpus.driver import DriverError, Gpu, GpuUsage, NvidiaSmi
from sagehen.agent.launchers.orphans import Orphans
from support.nvidia_smi import (
    A10G,
    describe_gpu,
    install_nvidia_smi,
    install_script,
    uuid_of,
)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return NvidiaSmi(Orphans())


async def test_lists_gpus(driver, tmp_path):
    install_nvidia_smi(tmp_path, [describe_gpu(0), describe_gpu(1, **{"memory.total": "[N/A]"})])
    assert driver.is_installed
    assert await driver.list_gpus() == [
        Gpu(id="0", uuid=uuid_of(0), name=A10G, memory_mib=23028),
        Gpu(id="1", uuid=uuid_of(1), name=A10G, memory_mib=None),
    ]


async def test_a_partitioned_gpu_counts_as_its_mig_devices(driver, tmp_path):
    mig = [("3g.20gb", "MIG-aaaa"), ("1g.5gb", "MIG-bbbb")]
    install_nvidia_smi(tmp_path, [describe_gpu(0), describe_gpu(1, mig)])
    assert await driver.list_gpus() == [
        Gpu(id="0", uuid=uuid_of(0), name=A10G, memory_mib=23028),
        Gpu(id="MIG-aaaa", uuid="MIG-aaaa", name="MIG 3g.20gb"),
        Gpu(id="MIG-bbbb", uuid="MIG-bbbb", name="MIG 1g.5gb"),
    ]


async def test_an_old_driver_knows_no_mig(driver, tmp_path):
    install_script(
        tmp_path,
        "#!/bin/sh\ncase $1 in *mig.mode*) "
        "echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2;; esac\n"
        f"echo '0, {uuid_of(0)}, Tesla K80, 11441'\n",
    )
    assert await driver.list_gpus() == [
        Gpu(id="0", uuid=uuid_of(0), name="Tesla K80", memory_mib=11441)
    ]


async def test_reads_the_usage_of_gpus_that_report_it(driver, tmp_path):
    gpus = [describe_gpu(0), describe_gpu(1, **{"utilization.gpu": "[N/A]"})]
    install_nvidia_smi(tmp_path, gpus)
    assert await driver.usage() == {uuid_of(0): GpuUsage(compute=40, memory=25)}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo no; exit 9", "nvidia-smi failed with exit status 9: no"),
        ("echo hello", "nvidia-smi printed 'hello' instead of a GPU"),
        (f"echo 'x, {uuid_of(0)}, A, 1, N/A'", "printed the index 'x', which is no number"),
        ("cat /dev/zero", "printed more than 1048576 bytes"),
        ("printf '\\377\\376'", "instead of a GPU"),
    ],
)
async def test_says_what_is_wrong_with_the_tool(driver, tmp_path, script, problem):
    install_script(tmp_path, f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    with pytest.raises(DriverError) as raised:
        await driver.list_gpus()
    assert problem in str(raised.value)


async def test_no_gpu_is_no_error(driver, tmp_path):
    install_script(tmp_path, "#!/bin/sh\n")
    assert await driver.list_gpus() == []


async def test_a_tool_that_cannot_run(driver, tmp_path):
    install_script(tmp_path, "#!/nonexistent/interpreter\n")
    with pytest.raises(DriverError, match="nvidia-smi cannot be run: No such file"):
        await driver.list_gpus()


@pytest.mark.parametrize("script", ["", "exec >&- 2>&-"])
async def test_a_tool_that_hangs_is_ended(tmp_path, monkeypatch, script):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    install_script(
        tmp_path, f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\nexec /bin/sleep 1000\n"
    )
    orphans = Orphans()
    with pytest.raises(DriverError, match=r"did not end within 0\.5 s"):
        await NvidiaSmi(orphans, timeout_seconds=0.5).list_gpus()
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_is_no_orphan_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    go = tmp_path / "go"
    install_script(tmp_path, f"#!/bin/sh\nwhile [ ! -e {go} ]; do /bin/sleep 0.01; done\n")
    expected, started = [], asyncio.Event()

    class Recorded(Orphans):
        def expect(self, pid):
            expected.append(pid)
            started.set()

        def forget(self, pid):
            expected.remove(pid)

    listing = asyncio.create_task(NvidiaSmi(Recorded()).list_gpus())
    await started.wait()
    assert expected
    go.touch()
    assert await listing == []
    assert expected == []
