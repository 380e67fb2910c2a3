"""A process that builds one store of offline results, and reports on its standard output."""

import argparse
import os

import msgspec

from sagehen.base.clock import SYSTEM
from sagehen.base.home import Home
from sagehen.base.pickled_settings import unpickle_settings
from sagehen.base.processes import die_with_parent
from sagehen.base.telemetry import configure_logging
from sagehen.services.s3.storage.opening import open_object_store
from sagehen.services.sagemaker.offline_results.building import BuildRequest, build_store
from sagehen.state.database import Database

__all__: list[str] = []

NICENESS = 10
"""requests go first"""


def _main() -> None:
    parser = argparse.ArgumentParser(prog="sagehen.app.roles.offline_results")
    parser.add_argument("--parent", type=int, required=True)
    die_with_parent(parser.parse_args().parent)
    os.nice(NICENESS)
    with open(0, "rb", closefd=False) as stream:
        settings = unpickle_settings(stream)
        request = msgspec.json.decode(stream.read(), type=BuildRequest)
    configure_logging(settings.log_level, "offline-results")
    home = Home(settings.home)
    database = Database(settings.state_url)
    objects = open_object_store(settings, home, database, SYSTEM)
    report = build_store(objects, home.offline_results, request, SYSTEM.now())
    database.close()
    os.write(1, msgspec.json.encode(report))


if __name__ == "__main__":
    _main()
