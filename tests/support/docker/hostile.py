"""A model's script that does not keep to its model: what it finds is its answer.

It runs in containers of the tests' image, in the process of `serve`.
"""

import ctypes
import os
import socket
import stat

SECONDS = 2
"""for a connection: what is filtered never answers"""
LIBC = ctypes.CDLL(None, use_errno=True)


def attempt(action, *arguments):
    try:
        return action(*arguments)
    except OSError:
        return None


def read(path):
    with open(path, "rb") as file:
        return bool(file.read(512))


def opens_to_write(path):
    os.close(os.open(path, os.O_WRONLY))
    return True


def connects(family, address):
    with socket.socket(family) as client:
        client.settimeout(SECONDS)
        client.connect(address)
    return True


def sockets_below(top):
    found = []
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(folder, name) not in ("/proc", "/sys")]
        for name in files:
            path = os.path.join(folder, name)
            if stat.S_ISSOCK((attempt(os.lstat, path) or os.stat("/")).st_mode):
                found.append(path)
    return found


def makes_and_reads_a_disk(number):
    major, minor, _, name = number
    path = f"/tmp/{name}"
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(int(major), int(minor)))
    return read(path)


def disks():
    with open("/proc/partitions") as file:
        rows = [line.split() for line in file.read().splitlines()[2:]]
    made = [row[3] for row in rows if attempt(makes_and_reads_a_disk, row)]
    there = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode)]
    return made + there


def mounts(target):
    return LIBC.mount(b"none", target.encode(), b"tmpfs", 0, None) == 0


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().decode(errors="replace")


def signals(pid):
    os.kill(pid, 0)
    return True


def run(wish):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {
        "user": os.getuid(),
        "read": [path for path in wish["files"] if attempt(read, path)],
        "written": [path for path in wish["files"] if attempt(opens_to_write, path)],
        "sockets": sockets_below("/"),
        "connected": [p for p in wish["sockets"] if attempt(connects, socket.AF_UNIX, p)],
        "reached": [
            name
            for name, (host, port) in wish["addresses"].items()
            if attempt(connects, socket.AF_INET, (host, port))
        ],
        "pids": pids,
        "signalled": [pid for pid in wish["pids"] if pid not in pids and attempt(signals, pid)],
        "environments": [attempt(environment_of, pid) or "" for pid in pids],
        "kernel": [path for path in wish["kernel"] if attempt(opens_to_write, path)],
        "disks": disks(),
        "mounted": [path for path in ("/mnt", "/opt/ml/model") if mounts(path)],
        "programs": bool(attempt(opens_to_write, "/opt/program/serve")),
        "listed": {path: attempt(os.listdir, path) or [] for path in wish["folders"]},
    }
