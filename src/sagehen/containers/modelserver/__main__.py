"""`python -m sagehen.containers.modelserver` reads the environment and serves until it is ended."""

import os
import sys

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.environment import read_environment


def main() -> int:
    try:
        environment = read_environment(os.environ)
        # As SageMaker's XGBoost container does; libraries read it when they are loaded.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        from sagehen.containers.modelserver.program import run

        return run(environment)
    except SagehenError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a framework's must not keep the process.
    os._exit(status)
