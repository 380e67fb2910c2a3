"""Runs the AWS CLI's commands without starting Python and importing the CLI for each.

That takes longer than most commands, as does reading the services' models, which is done once too.

    python warm_aws.py              runs the commands that come as lines of JSON, one at a time
    python warm_aws.py SOCKET       runs each command that a SHIM sends, in a fork of its own
"""

import functools
import gc
import json
import os
import socket
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

MOST = ("s3", "sagemaker", "sagemaker-runtime")
"""The services whose models forks are given."""
SHIM = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
' '''
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as told:
    told.connect({address!r})
    socket.send_fds(told, [json.dumps([os.getcwd(), sys.argv[1:]]).encode()], [0, 1, 2])
    sys.exit(told.recv(1)[0])
"""
"""What stands for the `aws` command, in a shell's way, as no first line of a script may name an
interpreter below a folder with a space. Its environment is that of the process that it asks."""


def main() -> None:
    from awscli.clidriver import create_clidriver

    run = read_models_once(create_clidriver)
    if len(sys.argv) > 1:
        for service in MOST:
            create_clidriver().session.create_client(service)
        serve(sys.argv[1], run)
    else:
        obey(run)


def read_models_once(create_clidriver):
    """Gives what runs a command, whose words it takes, to its exit status."""
    loader = create_clidriver().session.get_component("data_loader")
    files = loader.file_loader
    load, services = type(files).load_file, type(loader).list_available_services
    load_once = functools.cache(lambda path: load(files, path))
    list_once = functools.cache(lambda kind: services(loader, kind))
    # Each command makes a loader of its own.
    type(files).load_file = lambda self, path: load_once(path)
    type(loader).list_available_services = lambda self, type_name: list_once(type_name)
    return lambda words: create_clidriver().main(words)


def obey(run) -> None:
    for line in sys.stdin:
        printed, wrong = StringIO(), StringIO()
        with redirect_stdout(printed), redirect_stderr(wrong):
            status = run(json.loads(line))
        print(json.dumps([status, printed.getvalue(), wrong.getvalue()]), flush=True)  # noqa: T201


def serve(address: str, run) -> None:
    # What is there stays: each fork would look through all of it for garbage, and so copy it.
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)  # noqa: T201
        while True:
            asker, _ = listener.accept()
            with asker:
                message, descriptors, _, _ = socket.recv_fds(asker, 2**20, 3)
                folder, words = json.loads(message)
                asker.sendall(bytes([run_apart(run, folder, words, descriptors)]))


def run_apart(run, folder: str, words: list[str], descriptors: list[int]) -> int:
    """In a fork, in which nothing was done yet: as a process of its own would."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            for own, given in enumerate(descriptors):
                os.dup2(given, own)
            os.chdir(folder)
            status = run(words)
            sys.stdout.flush()
        finally:
            os._exit(status)
    for descriptor in descriptors:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
