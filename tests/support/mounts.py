"""Whether this kernel lets this user mount, as containers do."""

import subprocess

import pytest

UNSHARE = "unshare --mount --map-root-user mount -t tmpfs none /opt"
may_mount = pytest.mark.skipif(
    subprocess.run(["sh", "-c", UNSHARE], capture_output=True, check=False).returncode != 0,
    reason="the kernel lets this user not mount",
)
