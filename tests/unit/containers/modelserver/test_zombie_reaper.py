import subprocess
import sys

SCRIPT = """
import asyncio, ctypes, os, subprocess
from sagehen.containers.modelserver.zombie_reaper import reap_zombies

def children():
    return open(f"/proc/self/task/{os.getpid()}/children").read().split()

async def main():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    own = subprocess.Popen(["sleep", "1000"])
    subprocess.run(["sh", "-c", "sh -c 'exit 3' & exec true"])
    asyncio.create_task(reap_zombies(0.01))
    while children() != [str(own.pid)]:
        await asyncio.sleep(0.01)
    own.kill()
    print(own.wait())

asyncio.run(main())
"""


def test_the_dead_are_waited_for_and_nobody_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "-9\n"
